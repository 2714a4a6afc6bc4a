/* What is computed row by row: distributions, losses, normalisation, cells. Included once for portable C and once with instructions for
 * fused multiply-adds, with F(x) and ATTRIBUTE, the names and the attribute of functions.
 *
 * Nothing here depends on how a compiler makes vectors of it: operations of different elements are apart, sums over rows go through a
 * Tree of leaves, those within a row are 16 chains where they are long, and exp, log and tanh are polynomials of fused multiply-adds. A
 * comparison never depends on another one, or no vectors would be made of it. `share` is 1 / rows of the whole minibatch: rows are
 * multiplied by it before sums are made, so that sums over whole leaves of a minibatch add up to those over all of it.
 *
 * Above each function stand its equation and, where it computes one, the gradient; `by_x` is the loss's gradient by x that is given.
 */

/* ---------------------------------------------------------------- exp, log, tanh */

/* exp(x) = 2^n exp(r), n = round(x / ln 2), r = x - n ln 2 in two parts (Cody, Waite), |r| <= ln(2) / 2: exp(r) by a minimax polynomial
 * of degree 6. Relative error below 5.5e-7 (tried for every seventh float in [-87.3, 88.37]); below that 0, above it infinity. */
ATTRIBUTE INLINE float
F(exp)(float x)
{
    float limited = within(x, -87.3f, 88.37f);
    float n = nearest(limited * 1.44269504f);
    float r = fmaf(n, 1.42860677e-6f, fmaf(n, -0.693148613f, limited));
    float p = fmaf(fmaf(fmaf(fmaf(fmaf(1.37805939e-3f, r, 8.37312452e-3f), r, 4.16695364e-2f), r, 1.66664720e-1f), r, 0.49999985f), r, 1.0f);
    float y = scaled(fmaf(p, r, 1.0f), n);
    y = x > 88.37f ? INFINITY : y;
    return x < -87.3f ? 0.0f : y;
}

/* log(x) = e ln 2 + log(m), x = m 2^e, m in [sqrt(1/2), sqrt(2)): log(1 + f) = f - f^2 / 2 + f^3 p(f), p as in Cephes' logf (Moshier).
 * Relative error below 8e-8 (tried likewise); of normal positive numbers; what is no number stays it. */
ATTRIBUTE INLINE float
F(log)(float x)
{
    float e;
    float f = parts(x, &e) - 1.0f, s = f * f, p = 7.0376836292e-2f;
    p = fmaf(p, f, -1.1514610310e-1f);
    p = fmaf(p, f, 1.1676998740e-1f);
    p = fmaf(p, f, -1.2420140846e-1f);
    p = fmaf(p, f, 1.4249322787e-1f);
    p = fmaf(p, f, -1.6668057665e-1f);
    p = fmaf(p, f, 2.0000714765e-1f);
    p = fmaf(p, f, -2.4999993993e-1f);
    p = fmaf(p, f, 3.3333331174e-1f);
    float y = p * f * s;
    y = fmaf(e, -2.12194440e-4f, y);
    y = fmaf(-0.5f, s, y);
    return fmaf(e, 0.693359375f, f + y) + (x - x);
}

/* tanh(x) = x P(x^2) / Q(x^2) up to 4, the function of layers (see activation()); beyond it 1 - 2 / (exp(2 |x|) + 1), which is exact
 * enough at both ends for 1 - tanh^2, what is left between an action and its bound. Relative error below 2.8e-7 (tried likewise). */
ATTRIBUTE INLINE float
F(tanh)(float x)
{
    float y = within(x, -7.9f, 7.9f), z = y * y;
    float p = fmaf(fmaf(fmaf(fmaf(1.54280126e-08f, z, 2.20232741e-05f), z, 3.57899372e-03f), z, 1.34506226e-01f), z, 1.0f);
    float q = fmaf(fmaf(fmaf(fmaf(8.59879606e-07f, z, 3.42365325e-04f), z, 2.61922441e-02f), z, 4.67839509e-01f), z, 1.0f);
    float size = x < 0.0f ? -x : x;
    float rest = 2.0f / (F(exp)(2.0f * size) + 1.0f), near = y * p / q, far = 1.0f - rest;
    far = x < 0.0f ? -far : far;
    return size > 4.0f ? far : near;
}

/* ---------------------------------------------------------------- the squashed normal distribution */

/* a = tanh(u), u = mean + s noise, s = exp(l), l = log_std within [low, high] (Haarnoja et al. 2018, appendix C):
 *   log_prob = - sum over j of  noise^2 / 2 + l + log(2 pi) / 2 + log(1 - a^2 + 1e-6)
 * spread is s noise, slack 1 - a^2; terms are room. */
ATTRIBUTE static void
F(squashed_gaussian)(long rows, long n, float low, float high, const float *RESTRICT mean, const float *RESTRICT raw, const float *RESTRICT noise, float *RESTRICT actions,
          float *RESTRICT spread, float *RESTRICT slack, float *RESTRICT log_prob, float *RESTRICT part)
{
    for (long e = 0; e < rows * n; e++) {
        float width = within(raw[e], low, high);
        float moved = F(exp)(width) * noise[e], action = F(tanh)(mean[e] + moved), free = fmaf(-action, action, 1.0f);
        actions[e] = action;
        spread[e] = moved;
        slack[e] = free;
        part[e] = fmaf(0.5f * noise[e], noise[e], F(log)(free + 1e-6f) + width);
    }
    for (long row = 0; row < rows; row++) {
        float sum = 0.918938533f * (float)n;
        for (long j = 0; j < n; j++) {
            sum += part[row * n + j];
        }
        log_prob[row] = -sum;
    }
}

/* With h = by_actions + by_log_prob 2 a / (1 - a^2 + 1e-6), the gradients by what u is made of, noise being given:
 *   by mean      g = h (1 - a^2)
 *   by log_std   g s noise - by_log_prob, 0 where log_std is beyond its bounds */
ATTRIBUTE static void
F(squashed_gaussian_backward)(long count, float low, float high, const float *RESTRICT by_actions, float by, const float *RESTRICT actions, const float *RESTRICT spread,
            const float *RESTRICT slack, const float *RESTRICT raw, float *RESTRICT by_mean, float *RESTRICT by_log_std)
{
    for (long e = 0; e < count; e++) {
        float g = fmaf(actions[e] / (slack[e] + 1e-6f), 2.0f * by, by_actions[e]) * slack[e];
        by_mean[e] = g;
        float l = fmaf(g, spread[e], -by);
        l = raw[e] < low ? 0.0f : l;
        by_log_std[e] = raw[e] > high ? 0.0f : l;
    }
}

/* ---------------------------------------------------------------- choices: `sizes` of them in a row of `width` logits */

/* Of each choice, with logits z, of which masked ones are FORBIDDEN:
 *   log p_j = z_j - log(sum over k of exp(z_k)),  log_prob = log p of what was taken,  entropy = - sum over j of p_j log p_j
 * Log-probabilities and entropies of the choices of a row are added. The largest logit is subtracted first. */
ATTRIBUTE static void
F(categorical)(long rows, long width, long choices, const int64_t *sizes, const float *logits, const int64_t *taken, const uint8_t *masks,
          float *logs, float *probabilities, float *entropies, float *log_prob, float *entropy)
{
    for (long row = 0; row < rows; row++) {
        const float *in = logits + row * width;
        float *x = logs + row * width;
        for (long choice = 0, at = 0; choice < choices; at += sizes[choice++]) {
            float most = -INFINITY;
            for (long j = at; j < at + sizes[choice]; j++) {
                x[j] = masks == NULL || masks[row * width + j] ? in[j] : FORBIDDEN;
                most = x[j] > most || x[j] != x[j] ? x[j] : most;
            }
            for (long j = at; j < at + sizes[choice]; j++) {
                x[j] -= most;
            }
        }
    }
    for (long e = 0; e < rows * width; e++) {
        probabilities[e] = F(exp)(logs[e]);
    }
    for (long row = 0; row < rows; row++) {
        for (long choice = 0, at = 0; choice < choices; at += sizes[choice++]) {
            float sum = 0.0f;
            for (long j = at; j < at + sizes[choice]; j++) {
                sum += probabilities[row * width + j];
            }
            entropies[row * choices + choice] = sum;
        }
    }
    for (long row = 0; row < rows; row++) {
        float *x = logs + row * width, *p = probabilities + row * width, likely = 0.0f, open = 0.0f;
        for (long choice = 0, at = 0; choice < choices; at += sizes[choice++]) {
            float sum = entropies[row * choices + choice], log_sum = F(log)(sum), terms = 0.0f;
            for (long j = at; j < at + sizes[choice]; j++) {
                x[j] -= log_sum;
                p[j] /= sum;
                terms += masks == NULL || masks[row * width + j] ? p[j] * x[j] : 0.0f;
            }
            entropies[row * choices + choice] = -terms;
            open -= terms;
            likely += x[at + taken[row * choices + choice]];
        }
        log_prob[row] = likely;
        entropy[row] = open;
    }
}

/*   d log_prob / d z_j = [j was taken] - p_j          d entropy / d z_j = - p_j (log p_j + entropy)
 * by_entropy is one number for all rows; masked choices have the gradient 0. */
ATTRIBUTE static void
F(categorical_backward)(long rows, long width, long choices, const int64_t *sizes, const int64_t *taken, const uint8_t *masks, const float *logs,
            const float *probabilities, const float *entropies, const float *by_log_prob, float by_entropy, float *gradient)
{
    for (long row = 0; row < rows; row++) {
        const float *x = logs + row * width, *p = probabilities + row * width;
        float *g = gradient + row * width, by = by_log_prob[row];
        for (long choice = 0, at = 0; choice < choices; at += sizes[choice++]) {
            float open = entropies[row * choices + choice];
            for (long j = at; j < at + sizes[choice]; j++) {
                float slope = by_entropy == 0.0f ? by : fmaf(by_entropy, x[j] + open, by);
                g[j] = -(p[j] * slope);
            }
            g[at + taken[row * choices + choice]] += by;
            for (long j = at; masks != NULL && j < at + sizes[choice]; j++) {
                g[j] = masks[row * width + j] ? g[j] : 0.0f;
            }
        }
    }
}

/* ---------------------------------------------------------------- yes or no */

/* Of each number with the logit z and p = 1 / (1 + exp(-z)):
 *   log_prob = taken z - log(1 + exp(z)),  entropy = log(1 + exp(z)) - p z;  a row's are added, terms are log(1 + exp(z)) */
ATTRIBUTE static void
F(bernoulli)(long rows, long n, const float *RESTRICT logits, const float *RESTRICT taken, float *RESTRICT probabilities, float *RESTRICT terms,
        float *RESTRICT log_prob, float *RESTRICT entropy)
{
    for (long e = 0; e < rows * n; e++) {
        float x = logits[e], small = F(exp)(x < 0.0f ? x : -x), whole = 1.0f + small;
        probabilities[e] = (x < 0.0f ? small : 1.0f) / whole;
        terms[e] = (x > 0.0f ? x : 0.0f) + F(log)(whole) + (x - x); /* log(1 + exp(x)) */
    }
    for (long row = 0; row < rows; row++) {
        float likely = 0.0f, open = 0.0f;
        for (long e = row * n; e < (row + 1) * n; e++) {
            likely += fmaf(taken[e], logits[e], -terms[e]);
            open += fmaf(-probabilities[e], logits[e], terms[e]);
        }
        log_prob[row] = likely;
        entropy[row] = open;
    }
}

/*   d log_prob / d z = taken - p                        d entropy / d z = - z p (1 - p) */
ATTRIBUTE static void
F(bernoulli_backward)(long rows, long n, const float *RESTRICT logits, const float *RESTRICT taken, const float *RESTRICT probabilities,
          const float *RESTRICT by_log_prob, float by_entropy, float *RESTRICT gradient)
{
    for (long row = 0; row < rows; row++) {
        for (long e = row * n; e < (row + 1) * n; e++) {
            float p = probabilities[e], g = (taken[e] - p) * by_log_prob[row];
            gradient[e] = by_entropy == 0.0f ? g : fmaf(-by_entropy * logits[e], p * (1.0f - p), g);
        }
    }
}

/* ---------------------------------------------------------------- the normal distribution */

/* With distances d = (action - mean) exp(-log_std):
 *   log_prob = - sum over j of  d^2 / 2 + log_std + log(2 pi) / 2,  entropy = sum over j of  log_std + (1 + log(2 pi)) / 2 */
ATTRIBUTE static void
F(gaussian)(long rows, long n, const float *RESTRICT means, const float *RESTRICT actions, const float *RESTRICT log_std,
        float *RESTRICT inverse, float *RESTRICT distances, float *RESTRICT log_prob, float *RESTRICT entropy)
{
    float widths = 0.0f, constant = 0.918938533f * (float)n;
    for (long j = 0; j < n; j++) {
        inverse[j] = F(exp)(-log_std[j]);
        widths += log_std[j];
    }
    for (long row = 0; row < rows; row++) {
        float sum = 0.0f;
        for (long j = 0; j < n; j++) {
            float d = (actions[row * n + j] - means[row * n + j]) * inverse[j]; /* in standard deviations */
            distances[row * n + j] = d;
            sum = fmaf(d, d, sum);
        }
        log_prob[row] = fmaf(-0.5f, sum, -widths) - constant;
        entropy[row] = widths + (constant + 0.5f * (float)n);
    }
}

/*   d log_prob / d mean = d exp(-log_std)               d log_prob / d log_std = d^2 - 1,  d entropy / d log_std = 1
 * terms are what each row adds to the gradient by log_std */
ATTRIBUTE static void
F(gaussian_backward)(long rows, long n, const float *RESTRICT inverse, const float *RESTRICT distances, const float *RESTRICT by_log_prob,
          float by_entropy, float *RESTRICT gradient, float *RESTRICT terms)
{
    for (long row = 0; row < rows; row++) {
        float by = by_log_prob[row];
        for (long j = 0; j < n; j++) {
            float d = distances[row * n + j];
            gradient[row * n + j] = d * inverse[j] * by;
            terms[row * n + j] = fmaf(fmaf(d, d, -1.0f), by, by_entropy);
        }
    }
}

/* The same with a variance v + epsilon for each row, as gSDE has it (Raffin et al. 2021); distances are action - mean. */
ATTRIBUTE static void
F(gaussian_by_row)(long rows, long n, const float *RESTRICT means, const float *RESTRICT actions, const float *RESTRICT variances, float epsilon,
        float *RESTRICT distances, float *RESTRICT inverse, float *RESTRICT log_prob, float *RESTRICT entropy)
{
    float constant = 0.918938533f * (float)n;
    for (long row = 0; row < rows; row++) {
        float widths = 0.0f, sum = 0.0f;
        for (long e = row * n; e < (row + 1) * n; e++) {
            float variance = variances[e] + epsilon, d = actions[e] - means[e];
            distances[e] = d;
            inverse[e] = 1.0f / variance;
            widths += 0.5f * F(log)(variance);
            sum = fmaf(d * inverse[e], d, sum);
        }
        log_prob[row] = fmaf(-0.5f, sum, -widths) - constant;
        entropy[row] = widths + (constant + 0.5f * (float)n);
    }
}

/*   d log_prob / d mean = d / v                         d log_prob / d v = (d^2 / v - 1) / (2 v),  d entropy / d v = 1 / (2 v) */
ATTRIBUTE static void
F(gaussian_by_row_backward)(long rows, long n, const float *RESTRICT distances, const float *RESTRICT inverse, const float *RESTRICT by_log_prob,
          float by_entropy, float *RESTRICT by_means, float *RESTRICT by_variances)
{
    for (long row = 0; row < rows; row++) {
        float by = by_log_prob[row];
        for (long e = row * n; e < (row + 1) * n; e++) {
            float d = distances[e], of_mean = d * inverse[e];
            by_means[e] = of_mean * by;
            by_variances[e] = fmaf(fmaf(of_mean, d, -1.0f), by, by_entropy) * (0.5f * inverse[e]);
        }
    }
}

/* v = exp(2 log_std) */
ATTRIBUTE static void
F(exp_2x)(long n, const float *RESTRICT log_std, float *RESTRICT variances)
{
    for (long e = 0; e < n; e++) {
        variances[e] = F(exp)(2.0f * log_std[e]);
    }
}

/* ---------------------------------------------------------------- PPO */

/* PPO (Schulman et al. 2017), as SB3 has it; with r = exp(log_prob - old_log_prob), A the advantage:
 *   loss = - share sum of min(r A, clip(r, 1 - clip, 1 + clip) A) + vf_coef share sum of (V - R)^2 - ent_coef share sum of entropy
 * V is within clip_vf of the old value if there is one; without an entropy it is estimated by - log_prob.
 *   by log_prob    - share r A where that is the smaller of the two (0 elsewhere: nothing depends on r), + ent_coef share if estimated
 *   by values      2 vf_coef share (V - R), 0 where V was cut off
 * statistics: loss, policy's, values', entropy's, mean of (r - 1) - log r (an estimate of the KL divergence), share that was clipped */
ATTRIBUTE static void
F(ppo_loss)(long rows, const PpoLoss *how, float *statistics)
{
    Tree sums[6];
    float share = how->share, low = 1.0f - how->clip, high = 1.0f + how->clip;
    float terms[6][LEAF];

    for (int s = 0; s < 6; s++) {
        sums[s].waiting = 0;
        sums[s].leaves = 0;
    }
    for (long begin = 0; begin < rows; begin += LEAF) {
        long count = rows - begin < LEAF ? rows - begin : LEAF;
        const float *advantages = how->advantages + begin, *log_prob = how->log_prob + begin, *old = how->old_log_prob + begin;
        const float *values = how->values + begin, *returns = how->returns + begin;
        const float *old_values = how->old_values ? how->old_values + begin : values;
        const float *entropy = how->entropy ? how->entropy + begin : log_prob;
        float *by_log_prob = how->by_log_prob + begin, *by_values = how->by_values + begin;
        float estimated = how->entropy ? 0.0f : how->ent_coef * share, sign = how->entropy ? -share : share;
        for (long e = 0; e < count; e++) {
            float moved = log_prob[e] - old[e], ratio = F(exp)(moved);
            float limited = within(ratio, low, high);
            float free = advantages[e] * ratio, bound = advantages[e] * limited;
            int counts = (free <= bound) | (free != free);
            float least = counts ? free : bound; /* beyond it, nothing depends on the ratio */
            by_log_prob[e] = fmaf(-share, counts ? free : 0.0f, estimated);
            terms[1][e] = least * -share;
            terms[3][e] = entropy[e] * sign;
            terms[4][e] = ((ratio - 1.0f) - moved) * share;
            terms[5][e] = limited != ratio ? share : 0.0f;
        }
        for (long e = 0; e < count; e++) {
            float moved = values[e] - old_values[e], error = values[e] - returns[e], clip = how->clip_vf;
            float limited = within(moved, -clip, clip);
            float clipped = (old_values[e] + limited) - returns[e];
            error = how->old_values ? clipped : error;
            terms[2][e] = error * error * share;
            by_values[e] = 2.0f * how->vf_coef * share * ((moved == limited) | (error != error) ? error : 0.0f);
            terms[0][e] = fmaf(how->vf_coef, terms[2][e], fmaf(how->ent_coef, terms[3][e], terms[1][e]));
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
}

/* The sum of 16 chains. */
ATTRIBUTE INLINE float
F(folded)(float *s)
{
    for (int half = 8; half; half /= 2) {
        for (int e = 0; e < half; e++) {
            s[e] += s[e + half];
        }
    }
    return s[0];
}

/* ---------------------------------------------------------------- errors of values */

/* Squared errors of critics Q_c against one target (Fujimoto et al. 2018; with alpha Haarnoja et al. 2018):
 *   y = reward + discount (1 - done) (min over c of following_c - alpha log_prob),  loss = share sum over c and rows of (Q_c - y)^2
 *   by Q_c   2 share (Q_c - y) */
ATTRIBUTE static float
F(td_loss)(long critics, long rows, const float *RESTRICT values, const float *RESTRICT following, const float *RESTRICT log_prob, float alpha,
      const float *RESTRICT dones, const float *RESTRICT rewards, const float *RESTRICT discounts, float discount, float share,
      float *RESTRICT by_values)
{
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
            for (long e = 0; e < count; e++) {
                returns[e] = (returns[e] < other[e]) | (returns[e] != returns[e]) ? returns[e] : other[e];
            }
        }
        for (long e = 0; log_prob != NULL && e < count; e++) {
            returns[e] = fmaf(-alpha, log_prob[begin + e], returns[e]);
        }
        for (long e = 0; e < count; e++) {
            float gamma = discounts == NULL ? discount : discounts[begin + e];
            returns[e] = (1.0f - dones[begin + e]) * returns[e] * gamma + rewards[begin + e];
        }
        for (long critic = 0; critic < critics; critic++) {
            const float *own = values + critic * rows + begin;
            float *by = by_values + critic * rows + begin;
            for (long e = 0; e < count; e++) {
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
ATTRIBUTE static void
F(q_target)(long rows, long n, const float *RESTRICT following, const float *choosing, const float *RESTRICT dones, const float *RESTRICT rewards,
        const float *RESTRICT discounts, float discount, float *RESTRICT returns)
{
    for (long row = 0; row < rows; row++) {
        const float *x = (choosing ? choosing : following) + row * n;
        long best = 0;
        for (long j = 1; j < n; j++) { /* what is no number is more than any */
            best = x[j] > x[best] || (x[j] != x[j] && x[best] == x[best]) ? j : best;
        }
        float gamma = discounts == NULL ? discount : discounts[row];
        returns[row] = (1.0f - dones[row]) * following[row * n + best] * gamma + rewards[row];
    }
}

/* Error of the action that was taken (Mnih et al. 2015, with Huber's loss as in SB3's DQN): d = Q(s, a) - y
 *   loss = share sum over rows of  d^2                        by Q(s, a)   share 2 d
 *          or, with huber,         d^2 / 2 where |d| <= 1                  share clip(d, -1, 1)
 *                                  |d| - 1/2 elsewhere
 * clip(d) (d - clip(d) / 2) is both of Huber's cases at once, without a branch. Other actions have the gradient 0. */
ATTRIBUTE static float
F(q_loss)(long rows, long n, const float *RESTRICT values, const int64_t *RESTRICT actions, const float *RESTRICT returns, int huber,
         float share, float *RESTRICT by_values)
{
    Tree tree = {.waiting = 0, .leaves = 0};
    float errors[LEAF], terms[LEAF];

    memset(by_values, 0, (size_t)(rows * n) * sizeof(float));
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
            by_values[(begin + e) * n + actions[begin + e]] = errors[e];
        }
        leaf_of(&tree, sum);
    }
    return whole_of(&tree);
}

/* One return against one quantile, into chain e of the sums */
#define QUANTILE_ERROR(p, e)                                              \
    {                                                                     \
        float error = known[p] - value;                                   \
        float near = error < -1.0f ? -1.0f : error > 1.0f ? 1.0f : error; \
        float slope = (error < 0.0f ? below : above) * near;              \
        losses[e] = fmaf(slope, fmaf(-0.5f, near, error), losses[e]);     \
        slopes[e] += slope;                                               \
    }

/* Quantile regression (Dabney et al. 2018; TQC: Kuznetsov et al. 2020) of n quantiles q_i of each critic and row against m returns y_k,
 * with tau_i = (i + 1/2) / n, d = y_k - q_i and Huber's loss H:
 *   loss = share sum over critics, rows, i, k of  |tau_i - [d < 0]| H(d)          by q_i   - share sum over k of |tau_i - [d < 0]| clip(d, -1, 1)
 * A sum over returns has 16 chains. */
ATTRIBUTE static float
F(quantile_loss)(long critics, long rows, long n, long m, const float *RESTRICT values, const float *RESTRICT returns, float share,
             float *RESTRICT by_values)
{
    Tree tree = {.waiting = 0, .leaves = 0};
    long whole = m / 16 * 16;

    for (long begin = 0; begin < rows; begin += LEAF) {
        long end = rows - begin < LEAF ? rows : begin + LEAF;
        float sum = 0.0f;
        for (long at = begin * critics; at < end * critics; at++) {
            long row = at / critics, first = (at % critics * rows + row) * n;
            const float *known = returns + row * m;
            for (long i = 0; i < n; i++) {
                float value = values[first + i], above = ((float)i + 0.5f) / (float)n, below = 1.0f - above;
                float losses[16] = {0}, slopes[16] = {0};
                for (long p = 0; p < whole; p += 16) {
                    for (int e = 0; e < 16; e++) {
                        QUANTILE_ERROR(p + e, e)
                    }
                }
                for (long p = whole; p < m; p++) {
                    QUANTILE_ERROR(p, p - whole)
                }
                sum = fmaf(F(folded)(losses), share, sum);
                by_values[first + i] = -share * F(folded)(slopes);
            }
        }
        leaf_of(&tree, sum);
    }
    return whole_of(&tree);
}

#undef QUANTILE_ERROR

/* sum over rows of  first a + second b, if there is a second one: what an actor's loss is */
ATTRIBUTE static float
F(weighted_sum)(long rows, const float *first, float a, const float *second, float b)
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

/* out = (x - mean) / (standard deviation + 1e-8), of so many numbers less one, as torch's std() */
ATTRIBUTE static void
F(standardize)(long rows, const float *x, float *out)
{
    float mean = F(weighted_sum)(rows, x, 1.0f, NULL, 0.0f) / (float)rows;
    Tree tree = {.waiting = 0, .leaves = 0};
    for (long begin = 0; begin < rows; begin += LEAF) {
        long end = rows - begin < LEAF ? rows : begin + LEAF;
        float sum = 0.0f;
        for (long e = begin; e < end; e++) {
            out[e] = x[e] - mean;
            sum = fmaf(out[e], out[e], sum);
        }
        leaf_of(&tree, sum);
    }
    float width = sqrtf(whole_of(&tree) / (float)(rows - 1)) + 1e-8f;
    for (long e = 0; e < rows; e++) {
        out[e] /= width;
    }
}

/* ---------------------------------------------------------------- normalisation of layers, in sums of 16 chains */

/* y = w hat + b, hat = (x - mean of x) scale, scale = 1 / sqrt(variance of x + epsilon), over the numbers of a row (Ba et al. 2016) */
ATTRIBUTE static void
F(layer_norm)(long rows, long n, const float *x, long ldx, const float *RESTRICT w, const float *RESTRICT b, float epsilon, float *y,
             float *RESTRICT hat, float *RESTRICT scale)
{
    for (long row = 0; row < rows; row++, x += ldx, y += n, hat += n) {
        float s[16] = {0}, t[16] = {0};
        long whole = n / 16 * 16;
        for (long p = 0; p < n; p += 16) {
            long count = p < whole ? 16 : n - p;
            for (long e = 0; e < count; e++) {
                s[e] += x[p + e];
            }
        }
        float mean = F(folded)(s) / (float)n;
        for (long p = 0; p < n; p += 16) {
            long count = p < whole ? 16 : n - p;
            for (long e = 0; e < count; e++) {
                hat[p + e] = x[p + e] - mean;
                t[e] = fmaf(hat[p + e], hat[p + e], t[e]);
            }
        }
        float factor = 1.0f / sqrtf(F(folded)(t) / (float)n + epsilon);
        scale[row] = factor;
        for (long j = 0; j < n; j++) {
            hat[j] *= factor;
            y[j] = fmaf(hat[j], w[j], b[j]);
        }
    }
}

/* With h = g w:   grad_x = scale (h - mean of h - hat mean of (h hat));   then g becomes g hat, whose columns add up to the gradient by w */
ATTRIBUTE static void
F(layer_norm_backward)(long rows, long n, float *g, const float *RESTRICT w, const float *RESTRICT hat, const float *RESTRICT scale,
               const int64_t *picked, float *dx)
{
    for (long row = 0; row < rows; row++, g += n) {
        long at = picked ? picked[row] : row;
        const float *h = hat + at * n;
        float s[16] = {0}, t[16] = {0};
        long whole = n / 16 * 16;
        for (long p = 0; p < n; p += 16) {
            long count = p < whole ? 16 : n - p;
            for (long e = 0; e < count; e++) {
                float weighted = g[p + e] * w[p + e];
                s[e] += weighted;
                t[e] = fmaf(weighted, h[p + e], t[e]);
            }
        }
        float mean = F(folded)(s) / (float)n, along = F(folded)(t) / (float)n;
        for (long j = 0; j < n; j++) {
            if (dx != NULL) {
                dx[row * n + j] = scale[at] * (fmaf(-h[j], along, g[j] * w[j]) - mean);
            }
            g[j] *= h[j];
        }
    }
}

/* ---------------------------------------------------------------- LSTM cells: gates become what they let through */

ATTRIBUTE INLINE void
F(sigmoid)(long count, float *x)
{
    for (long e = 0; e < count; e++) {
        x[e] = 1.0f / (1.0f + F(exp)(-x[e]));
    }
}

/* Gates i, f, o = 1 / (1 + exp(-z)) and new = tanh(z), in torch's order i, f, new, o (Hochreiter, Schmidhuber 1997; Gers et al. 2000):
 *   c = f c_before + i new,  out = o tanh(c);  gates are overwritten by what they let through */
ATTRIBUTE static void
F(lstm_cell)(long rows, long n, float *gates, const float *RESTRICT before, float *RESTRICT cells, float *RESTRICT out)
{
    for (long row = 0; row < rows; row++, gates += 4 * n, before += n, cells += n, out += n) {
        F(sigmoid)(2 * n, gates);
        for (long e = 2 * n; e < 3 * n; e++) {
            gates[e] = F(tanh)(gates[e]);
        }
        F(sigmoid)(n, gates + 3 * n);
        const float *in = gates, *kept = gates + n, *new = gates + 2 * n, *shown = gates + 3 * n;
        for (long e = 0; e < n; e++) {
            cells[e] = fmaf(kept[e], before[e], in[e] * new[e]);
            out[e] = shown[e] * F(tanh)(cells[e]);
        }
    }
}

/* With h = by_cells + by_out o (1 - tanh(c)^2), gradients by what came into the gates:
 *   i: h new i (1 - i)   f: h c_before f (1 - f)   new: h i (1 - new^2)   o: by_out tanh(c) o (1 - o)
 * by_cells comes from the step behind and, as h f, goes to the one before. */
ATTRIBUTE static void
F(lstm_cell_backward)(long rows, long n, const float *RESTRICT gates, const float *RESTRICT before, const float *RESTRICT cells,
           const float *RESTRICT by_out, float *RESTRICT by_cells, float *RESTRICT slopes)
{
    for (long row = 0; row < rows; row++, gates += 4 * n, before += n, cells += n, by_out += n, by_cells += n, slopes += 4 * n) {
        for (long e = 0; e < n; e++) {
            float in = gates[e], kept = gates[n + e], new = gates[2 * n + e], shown = gates[3 * n + e], squashed = F(tanh)(cells[e]);
            float by = fmaf(by_out[e] * shown, fmaf(-squashed, squashed, 1.0f), by_cells[e]);
            slopes[e] = by * new * in * (1.0f - in);
            slopes[n + e] = by * before[e] * kept * (1.0f - kept);
            slopes[2 * n + e] = by * in * fmaf(-new, new, 1.0f);
            slopes[3 * n + e] = by_out[e] * squashed * shown * (1.0f - shown);
            by_cells[e] = by * kept;
        }
    }
}

#undef F
#undef ATTRIBUTE
