static const float *weights;

void model_load(const float *values) { weights = values; }

float model_score(const float *features, const long *index, int count)
{
    float sum = 0;
    for (int i = 0; i < count; i++)
        sum += features[i] * weights[index[i]];
    return sum;
}
