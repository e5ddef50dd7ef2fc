/* Template: averaged weights, which predict instead of the last ones.
 *
 * The n-th sample of the weights, counted from 1, moves the mean by (eta + 1) / (n + eta) of the way to it. So the
 * later half has 1 - 2^-(eta + 1) of the total weight, wherever training ends (Shamir and Zhang 2013; 94 % for eta 3).
 * Weights are sampled every s->every rows, about one vector's worth of work per row, and at the end of an epoch. */

static CP_NOINLINE void CP(sample_weights)(cp_sgd *s)
{
    const int64_t stride = s->sparse ? s->stride : s->padded, all = s->padded * (s->sparse ? s->features : s->outputs);
    const int64_t line = stride == s->padded ? all : s->padded;
    const REAL *v = CP_AT(s, const REAL, w), *bias = CP_AT(s, const REAL, bias);
    double *mean = CP_AT(s, double, mean), *mean_bias = CP_AT(s, double, mean_bias);
    const double share = (CP_MEAN_ETA + 1) / (double)(++s->taken + CP_MEAN_ETA), scale = s->scale;
    CP(settle)(s);
    for (int64_t i = 0; line == 1 && i < all; i++)
        mean[i] += share * (scale * (double)v[i * CP_RECORD_REALS] - mean[i]);
    for (int64_t i = 0; line > 1 && i < all; i += line, v += stride, mean += line)
        for (int64_t j = 0; j < line; j++)
            mean[j] += share * (scale * (double)v[j] - mean[j]);
    for (int64_t k = 0; k < s->outputs; k++)
        mean_bias[k] += share * ((double)bias[k] - mean_bias[k]);
    s->since = 0;
}
