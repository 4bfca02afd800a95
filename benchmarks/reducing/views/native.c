void resample(const double *values, const long *index, long count, double *into)
{
    for (long i = 0; i < count; i++)
        into[i] = values[index[i]];
}

double energy(const double *values, long count)
{
    double sum = 0;
    for (long i = 0; i < count; i++)
        sum += values[i] * values[i];
    return sum;
}
