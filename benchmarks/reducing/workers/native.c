#include <stdlib.h>

struct plan { int size; double *weights; };

struct plan *plan_create(int size)
{
    if (size <= 0)
        return NULL;
    struct plan *plan = malloc(sizeof *plan);
    plan->size = size;
    plan->weights = calloc(size, sizeof(double));
    plan->weights[size / 2] = 1.0;
    return plan;
}

double plan_apply(const struct plan *plan, const double *values, int count)
{
    double sum = 0;
    for (int i = 0; i < count; i++)
        sum += values[i] * plan->weights[i % plan->size];
    return sum;
}

void plan_destroy(struct plan *plan)
{
    if (plan)
        free(plan->weights);
    free(plan);
}
