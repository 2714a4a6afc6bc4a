/* Losses, row by row, and their gradients. Plain C with fmaf: see rows.h.
 *
 * A loss is a function and a line of LOSSES. Above each stand its equation and its gradient. Sums over rows go through a Tree of leaves, so
 * that blocks of a minibatch add up to the whole, whoever computed them; `share` is 1 / rows of that whole, and rows are multiplied by it
 * before sums are made. Sizes: r rows, n numbers of each, c critics, m numbers of each row's target.
 */
#ifndef LOSSES
#define LOSSES(FUNCTION) \
    FUNCTION(ppo_loss, "values[r] log_prob[r] entropy?[r] advantages[r] returns[r] old_log_prob[r] old_values?[r] clip:float " \
             "clip_vf:float ent_coef:float vf_coef:float share:float > grad_values[r] grad_log_prob[r] statistics[6]", \
             "PPO's loss; values are clipped if there are old ones.") \
    FUNCTION(td_loss, "values[c>0,r] following[c,r] log_prob?[r] alpha:float dones[r] rewards[r] discounts?[r] discount:float " \
             "share:float > grad_values[c,r] : float", \
             "Squared errors of critics against rewards and the least that `following` says.") \
    FUNCTION(q_target, "following[r,n>0] choosing?[r,n] dones[r] rewards[r] discounts?[r] discount:float > returns[r]", \
             "Rewards and what the best next action is worth by `following`; `choosing` says which, if there is such.") \
    FUNCTION(q_loss, "values[r,n] actions:index[r<n] returns[r] huber:bool share:float > grad_values[r,n] : float", \
             "Errors of the values of actions against returns, squared or by Huber.") \
    FUNCTION(quantile_loss, "critics:size[c] rows:size[r] values[c,r,n] returns[r,m] share:float > grad_values[c,r,n] : float", \
             "Errors of quantiles against returns: by Huber, and by how unlikely their side is.") \
    FUNCTION(weighted_sum, "first[r] a:float second?[r] b:float : float", "The sum over rows of `first a + second b`.") \
    FUNCTION(standardize, "numbers[r>1] > out[r]", "Numbers with mean 0 and standard deviation 1.")
#endif

/* ---------------------------------------------------------------- PPO */

/* PPO (Schulman et al. 2017), as SB3 has it; with r = exp(log_prob - old_log_prob), A the advantage:
 *   loss = - share sum of min(r A, clip(r, 1 - clip, 1 + clip) A) + vf_coef share sum of (V - R)^2 - ent_coef share sum of entropy
 * V is within clip_vf of the old value if there is one; without an entropy it is estimated by - log_prob.
 *   by log_prob    - share r A where that is the smaller of the two (0 elsewhere: nothing depends on r), + ent_coef share if estimated
 *   by values      2 vf_coef share (V - R), 0 where V was cut off
 * statistics: loss, policy's, values', entropy's, mean of (r - 1) - log r (an estimate of the KL divergence), share that was clipped */
TARGET static float
NAME(ppo_loss)(const Sizes *size, const Value *v)
{
    long rows = size->r;
    float clip = (float)v[7].number, clip_vf = (float)v[8].number, ent_coef = (float)v[9].number, vf_coef = (float)v[10].number;
    float share = (float)v[11].number, low = 1.0f - clip, high = 1.0f + clip, *statistics = v[14].out;
    int cuts = v[6].f != NULL, estimates = v[2].f == NULL;
    float estimated = estimates ? ent_coef * share : 0.0f, sign = estimates ? share : -share;
    Tree sums[6];
    float terms[6][LEAF];

    for (int s = 0; s < 6; s++) {
        sums[s].waiting = 0;
        sums[s].leaves = 0;
    }
    for (long begin = 0; begin < rows; begin += LEAF) {
        long count = rows - begin < LEAF ? rows - begin : LEAF;
        const float *values = v[0].f + begin, *log_prob = v[1].f + begin, *entropy = estimates ? log_prob : v[2].f + begin;
        const float *advantages = v[3].f + begin, *returns = v[4].f + begin, *old = v[5].f + begin;
        const float *old_values = cuts ? v[6].f + begin : values;
        float *grad_values = v[12].out + begin, *grad_log_prob = v[13].out + begin;
        EACH for (long e = 0; e < count; e++) {
            float moved = log_prob[e] - old[e], ratio = NAME(expf)(moved);
            float limited = within(ratio, low, high);
            float free = advantages[e] * ratio, bound = advantages[e] * limited;
            int counts = (free <= bound) | (free != free);
            float least = counts ? free : bound; /* beyond it, nothing depends on the ratio */
            grad_log_prob[e] = fmaf(-share, counts ? free : 0.0f, estimated);
            terms[1][e] = least * -share;
            terms[3][e] = entropy[e] * sign;
            terms[4][e] = ((ratio - 1.0f) - moved) * share;
            terms[5][e] = limited != ratio ? share : 0.0f;
        }
        EACH for (long e = 0; e < count; e++) {
            float moved = values[e] - old_values[e], error = values[e] - returns[e];
            float limited = within(moved, -clip_vf, clip_vf);
            float clipped = (old_values[e] + limited) - returns[e];
            error = cuts ? clipped : error;
            terms[2][e] = error * error * share;
            grad_values[e] = 2.0f * vf_coef * share * ((moved == limited) | (error != error) ? error : 0.0f);
            terms[0][e] = fmaf(vf_coef, terms[2][e], fmaf(ent_coef, terms[3][e], terms[1][e]));
        }
        for (int s = 0; s < 6; s++) {
            float sum = 0.0f;
            for (long e = 0; e < count; e++) {
                sum += terms[s][e];
            }
            leaf_of(&sums[s], sum);
        }
    }
    for (int s = 0; s < 6; s++) {
        statistics[s] = whole_of(&sums[s]);
    }
    return 0.0f;
}

/* ---------------------------------------------------------------- errors of values */

/* Squared errors of critics Q_c against one target (Fujimoto et al. 2018; with alpha Haarnoja et al. 2018):
 *   y = reward + discount (1 - done) (min over c of following_c - alpha log_prob),  loss = share sum over c and rows of (Q_c - y)^2
 *   by Q_c   2 share (Q_c - y) */
TARGET static float
NAME(td_loss)(const Sizes *size, const Value *v)
{
    long critics = size->c, rows = size->r;
    const float *values = v[0].f, *following = v[1].f, *log_prob = v[2].f;
    float alpha = (float)v[3].number;
    const float *dones = v[4].f, *rewards = v[5].f, *discounts = v[6].f;
    float discount = (float)v[7].number, share = (float)v[8].number;
    float *grad_values = v[9].out;
    Tree tree = {.waiting = 0, .leaves = 0};
    float terms[LEAF], returns[LEAF];

    for (long begin = 0; begin < rows; begin += LEAF) {
        long count = rows - begin < LEAF ? rows - begin : LEAF;
        for (long e = 0; e < count; e++) {
            returns[e] = following[begin + e];
            terms[e] = 0.0f;
        }
        for (long critic = 1; critic < critics; critic++) {
            const float *other = following + critic * rows + begin;
            EACH for (long e = 0; e < count; e++) {
                returns[e] = (returns[e] < other[e]) | (returns[e] != returns[e]) ? returns[e] : other[e];
            }
        }
        for (long e = 0; log_prob != NULL && e < count; e++) {
            returns[e] = fmaf(-alpha, log_prob[begin + e], returns[e]);
        }
        EACH for (long e = 0; e < count; e++) {
            float gamma = discounts == NULL ? discount : discounts[begin + e];
            returns[e] = (1.0f - dones[begin + e]) * returns[e] * gamma + rewards[begin + e];
        }
        for (long critic = 0; critic < critics; critic++) {
            const float *own = values + critic * rows + begin;
            float *by = grad_values + critic * rows + begin;
            EACH for (long e = 0; e < count; e++) {
                float error = own[e] - returns[e];
                terms[e] = fmaf(error * share, error, terms[e]);
                by[e] = 2.0f * share * error;
            }
        }
        float sum = 0.0f;
        for (long e = 0; e < count; e++) {
            sum += terms[e];
        }
        leaf_of(&tree, sum);
    }
    return whole_of(&tree);
}

/* y = reward + discount (1 - done) following[a], a = argmax of following or, in double Q-learning (van Hasselt et al. 2016), of choosing */
TARGET static float
NAME(q_target)(const Sizes *size, const Value *v)
{
    long rows = size->r, n = size->n;
    const float *following = v[0].f, *choosing = v[1].f, *dones = v[2].f, *rewards = v[3].f, *discounts = v[4].f;
    float discount = (float)v[5].number;
    float *returns = v[6].out;

    for (long row = 0; row < rows; row++) {
        const float *x = (choosing ? choosing : following) + row * n;
        long best = 0;
        for (long j = 1; j < n; j++) { /* what is no number is more than any */
            best = x[j] > x[best] || (x[j] != x[j] && x[best] == x[best]) ? j : best;
        }
        float gamma = discounts == NULL ? discount : discounts[row];
        returns[row] = (1.0f - dones[row]) * following[row * n + best] * gamma + rewards[row];
    }
    return 0.0f;
}

/* Error of the action that was taken (Mnih et al. 2015, with Huber's loss as in SB3's DQN): d = Q(s, a) - y
 *   loss = share sum over rows of  d^2                        by Q(s, a)   share 2 d
 *          or, with huber,         d^2 / 2 where |d| <= 1                  share clip(d, -1, 1)
 *                                  |d| - 1/2 elsewhere
 * clip(d) (d - clip(d) / 2) is both of Huber's cases at once, without a branch. Other actions have the gradient 0. */
TARGET static float
NAME(q_loss)(const Sizes *size, const Value *v)
{
    long rows = size->r, n = size->n;
    const float *values = v[0].f;
    const int64_t *actions = v[1].i;
    const float *returns = v[2].f;
    int huber = (int)v[3].whole;
    float share = (float)v[4].number;
    float *grad_values = v[5].out;
    Tree tree = {.waiting = 0, .leaves = 0};
    float errors[LEAF], terms[LEAF];

    memset(grad_values, 0, (size_t)(rows * n) * sizeof(float));
    for (long begin = 0; begin < rows; begin += LEAF) {
        long count = rows - begin < LEAF ? rows - begin : LEAF;
        for (long e = 0; e < count; e++) {
            errors[e] = values[(begin + e) * n + actions[begin + e]] - returns[begin + e];
        }
        for (long e = 0; e < count; e++) {
            float error = errors[e], near = within(error, -1.0f, 1.0f);
            terms[e] = (huber ? near * fmaf(-0.5f, near, error) : error * error) * share;
            errors[e] = (huber ? near : 2.0f * error) * share;
        }
        float sum = 0.0f;
        for (long e = 0; e < count; e++) {
            sum += terms[e];
            grad_values[(begin + e) * n + actions[begin + e]] = errors[e];
        }
        leaf_of(&tree, sum);
    }
    return whole_of(&tree);
}

/* One return against a quantile, into one chain of both sums */
TARGET INLINE void
NAME(quantile_error)(float known, float value, float below, float above, float *loss, float *slope)
{
    float error = known - value;
    float near = error < -1.0f ? -1.0f : error > 1.0f ? 1.0f : error;
    float by = (error < 0.0f ? below : above) * near;
    *loss = fmaf(by, fmaf(-0.5f, near, error), *loss);
    *slope += by;
}

/* Quantile regression (Dabney et al. 2018; TQC: Kuznetsov et al. 2020) of n quantiles q_i of each critic and row against m returns y_k,
 * with tau_i = (i + 1/2) / n, d = y_k - q_i and Huber's loss H:
 *   loss = share sum over critics, rows, i, k of  |tau_i - [d < 0]| H(d)          by q_i   - share sum over k of |tau_i - [d < 0]| clip(d, -1, 1)
 * A sum over returns has 16 chains. */
TARGET static float
NAME(quantile_loss)(const Sizes *size, const Value *v)
{
    long critics = size->c, rows = size->r, n = size->n, m = size->m;
    const float *values = v[2].f, *returns = v[3].f;
    float share = (float)v[4].number;
    float *grad_values = v[5].out;
    Tree tree = {.waiting = 0, .leaves = 0};
    long whole = m / 16 * 16;

    for (long begin = 0; begin < rows; begin += LEAF) {
        long end = rows - begin < LEAF ? rows : begin + LEAF;
        float sum = 0.0f;
        for (long at = begin * critics; at < end * critics; at++) {
            long row = at / critics, first = (at % critics * rows + row) * n;
            const float *known = returns + row * m;
            float last[16] = {0}; /* those that are fewer than 16, which are computed at once, too */
            memcpy(last, known + whole, (size_t)(m - whole) * sizeof(float));
            for (long i = 0; i < n; i++) {
                float value = values[first + i], above = ((float)i + 0.5f) / (float)n, below = 1.0f - above;
                float losses[16] = {0}, slopes[16] = {0};
                for (long p = 0; p < m; p += 16) {
                    const float *some = p < whole ? known + p : last;
                    int count = m - p < 16 ? (int)(m - p) : 16;
                    EACH for (int e = 0; e < 16; e++) {
                        float loss = losses[e], slope = slopes[e];
                        NAME(quantile_error)(some[e], value, below, above, &loss, &slope);
                        losses[e] = e < count ? loss : losses[e];
                        slopes[e] = e < count ? slope : slopes[e];
                    }
                }
                sum = fmaf(NAME(folded)(losses), share, sum);
                grad_values[first + i] = -share * NAME(folded)(slopes);
            }
        }
        leaf_of(&tree, sum);
    }
    return whole_of(&tree);
}

/* sum over rows of  first a + second b, if there is a second one: what an actor's loss is */
TARGET static float
NAME(sum_over)(long rows, const float *first, float a, const float *second, float b)
{
    Tree tree = {.waiting = 0, .leaves = 0};
    for (long begin = 0; begin < rows; begin += LEAF) {
        long end = rows - begin < LEAF ? rows : begin + LEAF;
        float sum = 0.0f;
        for (long e = begin; e < end; e++) {
            sum += second == NULL ? first[e] * a : fmaf(second[e], b, first[e] * a);
        }
        leaf_of(&tree, sum);
    }
    return whole_of(&tree);
}

TARGET static float
NAME(weighted_sum)(const Sizes *size, const Value *v)
{
    return NAME(sum_over)(size->r, v[0].f, (float)v[1].number, v[2].f, (float)v[3].number);
}

/* out = (x - mean) / (standard deviation + 1e-8), of so many numbers less one, as torch's std() */
TARGET static float
NAME(standardize)(const Sizes *size, const Value *v)
{
    long rows = size->r;
    const float *numbers = v[0].f;
    float *out = v[1].out, mean = NAME(sum_over)(rows, numbers, 1.0f, NULL, 0.0f) / (float)rows;
    Tree tree = {.waiting = 0, .leaves = 0};
    for (long begin = 0; begin < rows; begin += LEAF) {
        long end = rows - begin < LEAF ? rows : begin + LEAF;
        float sum = 0.0f;
        for (long e = begin; e < end; e++) {
            out[e] = numbers[e] - mean;
            sum = fmaf(out[e], out[e], sum);
        }
        leaf_of(&tree, sum);
    }
    float width = sqrtf(whole_of(&tree) / (float)(rows - 1)) + 1e-8f;
    for (long e = 0; e < rows; e++) {
        out[e] /= width;
    }
    return 0.0f;
}
