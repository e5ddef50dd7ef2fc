/* Template: what formulas need of a vector of reals: a quad, of which one lane or a few are rows or models; or, as CP_LANED, a
 * whole native vector of models. */

CP_INLINE quad CP(all)(real a) { return a - (quad){0}; }

CP_INLINE quad CP(absolute)(quad a)
{
    return (quad)((mask)a & ((CP(bits_type))-1 >> 1));
}

CP_INLINE quad CP(select)(mask pick, quad yes, quad no)
{
    return (quad)((pick & (mask)yes) | (~pick & (mask)no));
}

/* Return exp(-a) for a >= 0: 2^whole * 2^part by a polynomial. Relative error at most that of rounding a * log2(e)
 * and 2 ulp; 0 where the result would come near the smallest normal number. */
CP_INLINE quad CP(exp_minus)(quad a)
{
#if CP_BYTES == 4
    const real magic = 12582912.0f + 127, least = 87;
    quad t = a * -1.44269504088896341f, n = t + magic, x = t - (n - magic), x2 = x * x, x4 = x2 * x2;
    quad low = (1 + 0.6931472149680278995f * x) + (0.2402265278288773743f + 0.055503105510137971734f * x) * x2;
    quad high = (0.0096176929729930623181f + 0.0013406643902351759246f * x) + 0.00015594678161326619324f * x2;
    quad power = low + high * x4;
#else
    const real magic = 6755399441055744.0 + 1023, least = 707;
    quad t = a * -1.44269504088896340736, n = t + magic, x = t - (n - magic), x2 = x * x, x4 = x2 * x2;
    quad low = (1 + 0.69314718055994569675 * x) + (0.24022650695910098007 + 0.055504108664790394552 * x) * x2;
    quad mid = (0.0096181291076070023796 + 0.0013333558153439964747 * x)
               + (0.0001540353044157213033 + 0.000015252727385193868197 * x) * x2;
    quad high = (1.3215442675329822143e-6 + 1.0180647659234138888e-7 * x)
                + (7.0725704128144235096e-9 + 4.078071929588336665e-10 * x) * x2;
    quad power = low + (mid + high * x4) * x4;
#endif
    quad exact = (quad)((mask)n << (CP_BYTES == 4 ? 23 : 52));
    return (quad)((mask)(power * exact) & (mask)(a < least));
}

CP_INLINE int CP(is_finite)(real a) { return a - a == 0; }
