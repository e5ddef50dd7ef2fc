/* Template: vector operations that the loss formulas need. The vector is a quad, whose lanes are rows or models, or (as
 * CP_LANED) a whole native vector of models. */

CP_INLINE QUAD CP(all)(REAL a) { return a - (QUAD){0}; }

CP_INLINE QUAD CP(absolute)(QUAD a)
{
    return (QUAD)((MASK)a & ((CP(bits_type))-1 >> 1));
}

CP_INLINE QUAD CP(select)(MASK pick, QUAD yes, QUAD no)
{
    return (QUAD)((pick & (MASK)yes) | (~pick & (MASK)no));
}

/* Return exp(-a) for a >= 0, as 2^whole * 2^part by a polynomial. The relative error is at most that of rounding a *
 * log2(e) plus 2 ulp; the result is 0 near the smallest normal number. */
CP_INLINE QUAD CP(exp_minus)(QUAD a)
{
#if CP_BYTES == 4
    const REAL magic = 12582912.0f + 127, least = 87;
    QUAD t = a * -1.44269504088896341f, n = t + magic, x = t - (n - magic), x2 = x * x, x4 = x2 * x2;
    QUAD low = (1 + 0.6931472149680278995f * x) + (0.2402265278288773743f + 0.055503105510137971734f * x) * x2;
    QUAD high = (0.0096176929729930623181f + 0.0013406643902351759246f * x) + 0.00015594678161326619324f * x2;
    QUAD power = low + high * x4;
#else
    const REAL magic = 6755399441055744.0 + 1023, least = 707;
    QUAD t = a * -1.44269504088896340736, n = t + magic, x = t - (n - magic), x2 = x * x, x4 = x2 * x2;
    QUAD low = (1 + 0.69314718055994569675 * x) + (0.24022650695910098007 + 0.055504108664790394552 * x) * x2;
    QUAD mid = (0.0096181291076070023796 + 0.0013333558153439964747 * x)
               + (0.0001540353044157213033 + 0.000015252727385193868197 * x) * x2;
    QUAD high = (1.3215442675329822143e-6 + 1.0180647659234138888e-7 * x)
                + (7.0725704128144235096e-9 + 4.078071929588336665e-10 * x) * x2;
    QUAD power = low + (mid + high * x4) * x4;
#endif
    QUAD exact = (QUAD)((MASK)n << (CP_BYTES == 4 ? 23 : 52));
    return (QUAD)((MASK)(power * exact) & (MASK)(a < least));
}

CP_INLINE int CP(is_finite)(REAL a) { return a - a == 0; }
