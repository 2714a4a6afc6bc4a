/* Distributions of actions: log-probabilities, entropies, and their gradients. Plain C with fmaf: see rows.h.
 *
 * A distribution is a pair of functions and two lines of DISTRIBUTIONS. Above each stand its equation and, where it computes one, the
 * gradient; `by_x` is the loss's gradient by x that is given. Sizes: r rows, n numbers of each, w logits of each, c choices of each.
 */
#ifndef DISTRIBUTIONS
#define DISTRIBUTIONS(FUNCTION) \
    FUNCTION(squashed_gaussian, "mean[r,n] log_std[r,n] noise[r,n] > actions[r,n] spread[r,n] slack[r,n] log_prob[r] terms[r,n] " \
             "low:float high:float", \
             "Actions of squashed normal distributions, log_std within bounds, and their log-probabilities; `terms` is room.") \
    FUNCTION(squashed_gaussian_sample, "count:size[n] outputs[r,2n] noise?[r,n] > actions[r,n] low:float high:float", \
             "The actions alone, of means and log_std side by side; without noise those of the means.") \
    FUNCTION(squashed_gaussian_backward, "by_actions[r,n] by_log_prob:float actions[r,n] spread[r,n] slack[r,n] log_std[r,n] > " \
             "grad_mean[r,n] grad_log_std[r,n] low:float high:float", \
             "Gradients by means and by logarithms of standard deviations before they are bounded.") \
    FUNCTION(categorical, "sizes:split[c=w] logits[r,w] taken:index[r,c<sizes] masks?:mask[r,w] > logs[r,w] probabilities[r,w] " \
             "entropies[r,c] log_prob[r] entropy[r]", \
             "Log-probabilities and entropies of one choice or several; `masks` are true where a choice is allowed.") \
    FUNCTION(categorical_backward, "sizes:split[c=w] taken:index[r,c<sizes] masks?:mask[r,w] logs[r,w] probabilities[r,w] " \
             "entropies[r,c] by_log_prob[r] by_entropy:float > grad_logits[r,w]", "The gradient by the logits.") \
    FUNCTION(bernoulli, "logits[r,n] taken[r,n] > probabilities[r,n] terms[r,n] log_prob[r] entropy[r]", \
             "Log-probabilities and entropies of Bernoulli distributions; `terms` is room.") \
    FUNCTION(bernoulli_backward, "logits[r,n] taken[r,n] probabilities[r,n] by_log_prob[r] by_entropy:float > grad_logits[r,n]", \
             "The gradient by the logits.") \
    FUNCTION(gaussian, "means[r,n] actions[r,n] log_std[n] > inverse[n] distances[r,n] log_prob[r] entropy[r]", \
             "Log-probabilities and entropies of normal distributions, whose standard deviations do not depend on the row.") \
    FUNCTION(gaussian_by_row, "means[r,n] actions[r,n] variances[r,n] epsilon:float > distances[r,n] inverse[r,n] log_prob[r] " \
             "entropy[r]", "The same with variances for each row, to which `epsilon` is added.") \
    FUNCTION(gaussian_by_row_backward, "distances[r,n] inverse[r,n] by_log_prob[r] by_entropy:float > grad_means[r,n] " \
             "grad_variances[r,n]", "The gradients by means and variances.") \
    FUNCTION(exp_2x, "log_std[r] > variances[r]", "Variances, from logarithms of standard deviations.") \
    FUNCTION(exp, "x:float : float", "The exponential of one number, in float32.")
#endif

/* ---------------------------------------------------------------- the squashed normal distribution */

/* a = tanh(u), u = mean + s noise, s = exp(l), l = log_std within [low, high] (Haarnoja et al. 2018, appendix C):
 *   log_prob = - sum over j of  noise^2 / 2 + l + log(2 pi) / 2 + log(1 - a^2 + 1e-6)
 * spread is s noise, slack 1 - a^2; terms are room. */
TARGET static float
NAME(squashed_gaussian)(const Sizes *size, const Value *v)
{
    long rows = size->r, n = size->n;
    const float *mean = v[0].f, *log_std = v[1].f, *noise = v[2].f;
    float *actions = v[3].out, *spread = v[4].out, *slack = v[5].out, *log_prob = v[6].out, *terms = v[7].out;
    float low = (float)v[8].number, high = (float)v[9].number;

    EACH for (long e = 0; e < rows * n; e++) {
        float width = within(log_std[e], low, high);
        float moved = NAME(expf)(width) * noise[e], action = NAME(tanhf)(mean[e] + moved), free = fmaf(-action, action, 1.0f);
        actions[e] = action;
        spread[e] = moved;
        slack[e] = free;
        terms[e] = fmaf(0.5f * noise[e], noise[e], NAME(logf)(free + 1e-6f) + width);
    }
    for (long row = 0; row < rows; row++) {
        float sum = 0.918938533f * (float)n;
        for (long j = 0; j < n; j++) {
            sum += terms[row * n + j];
        }
        log_prob[row] = -sum;
    }
    return 0.0f;
}

/* The same a, for who acts */
TARGET static float
NAME(squashed_gaussian_sample)(const Sizes *size, const Value *v)
{
    long rows = size->r, n = size->n;
    const float *noise = v[2].f;
    float *actions = v[3].out, low = (float)v[4].number, high = (float)v[5].number;

    for (long row = 0; row < rows; row++, actions += n) {
        const float *mean = v[1].f + row * 2 * n, *log_std = mean + n;
        EACH for (long j = 0; j < n; j++) {
            float moved = noise == NULL ? 0.0f : NAME(expf)(within(log_std[j], low, high)) * noise[row * n + j];
            actions[j] = NAME(tanhf)(mean[j] + moved);
        }
    }
    return 0.0f;
}

/* With h = by_actions + by_log_prob 2 a / (1 - a^2 + 1e-6), the gradients by what u is made of, noise being given:
 *   by mean      g = h (1 - a^2)
 *   by log_std   g s noise - by_log_prob, 0 where log_std is beyond its bounds */
TARGET static float
NAME(squashed_gaussian_backward)(const Sizes *size, const Value *v)
{
    long count = size->r * size->n;
    const float *by_actions = v[0].f;
    float by_log_prob = (float)v[1].number;
    const float *actions = v[2].f, *spread = v[3].f, *slack = v[4].f, *log_std = v[5].f;
    float *grad_mean = v[6].out, *grad_log_std = v[7].out;
    float low = (float)v[8].number, high = (float)v[9].number;

    EACH for (long e = 0; e < count; e++) {
        float g = fmaf(actions[e] / (slack[e] + 1e-6f), 2.0f * by_log_prob, by_actions[e]) * slack[e];
        grad_mean[e] = g;
        float l = fmaf(g, spread[e], -by_log_prob);
        l = log_std[e] < low ? 0.0f : l;
        grad_log_std[e] = log_std[e] > high ? 0.0f : l;
    }
    return 0.0f;
}

/* ---------------------------------------------------------------- choices: `sizes` of them in a row of `width` logits */

/* Of each choice, with logits z, of which masked ones are FORBIDDEN:
 *   log p_j = z_j - log(sum over k of exp(z_k)),  log_prob = log p of what was taken,  entropy = - sum over j of p_j log p_j
 * Log-probabilities and entropies of the choices of a row are added. The largest logit is subtracted first. */
TARGET static float
NAME(categorical)(const Sizes *size, const Value *v)
{
    long rows = size->r, width = size->w, choices = size->c;
    const int64_t *sizes = v[0].i, *taken = v[2].i;
    const float *logits = v[1].f;
    const uint8_t *masks = v[3].mask;
    float *logs = v[4].out, *probabilities = v[5].out, *entropies = v[6].out, *log_prob = v[7].out, *entropy = v[8].out;

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
        probabilities[e] = NAME(expf)(logs[e]);
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
            float sum = entropies[row * choices + choice], log_sum = NAME(logf)(sum), terms = 0.0f;
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
    return 0.0f;
}

/*   d log_prob / d z_j = [j was taken] - p_j          d entropy / d z_j = - p_j (log p_j + entropy)
 * by_entropy is one number for all rows; masked choices have the gradient 0. */
TARGET static float
NAME(categorical_backward)(const Sizes *size, const Value *v)
{
    long rows = size->r, width = size->w, choices = size->c;
    const int64_t *sizes = v[0].i, *taken = v[1].i;
    const uint8_t *masks = v[2].mask;
    const float *logs = v[3].f, *probabilities = v[4].f, *entropies = v[5].f, *by_log_prob = v[6].f;
    float by_entropy = (float)v[7].number, *grad_logits = v[8].out;

    for (long row = 0; row < rows; row++) {
        const float *x = logs + row * width, *p = probabilities + row * width;
        float *g = grad_logits + row * width, by = by_log_prob[row];
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
    return 0.0f;
}

/* ---------------------------------------------------------------- yes or no */

/* Of each number with the logit z and p = 1 / (1 + exp(-z)):
 *   log_prob = taken z - log(1 + exp(z)),  entropy = log(1 + exp(z)) - p z;  a row's are added, terms are log(1 + exp(z)) */
TARGET static float
NAME(bernoulli)(const Sizes *size, const Value *v)
{
    long rows = size->r, n = size->n;
    const float *logits = v[0].f, *taken = v[1].f;
    float *probabilities = v[2].out, *terms = v[3].out, *log_prob = v[4].out, *entropy = v[5].out;

    EACH for (long e = 0; e < rows * n; e++) {
        float x = logits[e], small = NAME(expf)(x < 0.0f ? x : -x), whole = 1.0f + small;
        probabilities[e] = (x < 0.0f ? small : 1.0f) / whole;
        terms[e] = (x > 0.0f ? x : 0.0f) + NAME(logf)(whole) + (x - x); /* log(1 + exp(x)) */
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
    return 0.0f;
}

/*   d log_prob / d z = taken - p                        d entropy / d z = - z p (1 - p) */
TARGET static float
NAME(bernoulli_backward)(const Sizes *size, const Value *v)
{
    long rows = size->r, n = size->n;
    const float *logits = v[0].f, *taken = v[1].f, *probabilities = v[2].f, *by_log_prob = v[3].f;
    float by_entropy = (float)v[4].number;
    float *grad_logits = v[5].out;

    for (long row = 0; row < rows; row++) {
        EACH for (long e = row * n; e < (row + 1) * n; e++) {
            float p = probabilities[e], g = (taken[e] - p) * by_log_prob[row];
            grad_logits[e] = by_entropy == 0.0f ? g : fmaf(-by_entropy * logits[e], p * (1.0f - p), g);
        }
    }
    return 0.0f;
}

/* ---------------------------------------------------------------- the normal distribution */

/* With distances d = (action - mean) exp(-log_std):
 *   log_prob = - sum over j of  d^2 / 2 + log_std + log(2 pi) / 2,  entropy = sum over j of  log_std + (1 + log(2 pi)) / 2 */
TARGET static float
NAME(gaussian)(const Sizes *size, const Value *v)
{
    long rows = size->r, n = size->n;
    const float *means = v[0].f, *actions = v[1].f, *log_std = v[2].f;
    float *inverse = v[3].out, *distances = v[4].out, *log_prob = v[5].out, *entropy = v[6].out;
    float widths = 0.0f, constant = 0.918938533f * (float)n;
    for (long j = 0; j < n; j++) {
        inverse[j] = NAME(expf)(-log_std[j]);
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
    return 0.0f;
}

/*   d log_prob / d mean = d exp(-log_std)               d log_prob / d log_std = d^2 - 1,  d entropy / d log_std = 1
 * terms are what each row adds to the gradient by log_std */
TARGET static void
NAME(gaussian_backward)(long rows, long n, const float *inverse, const float *distances, const float *by_log_prob,
          float by_entropy, float *grad_means, float *terms)
{
    for (long row = 0; row < rows; row++) {
        float by = by_log_prob[row];
        EACH for (long j = 0; j < n; j++) {
            float d = distances[row * n + j];
            grad_means[row * n + j] = d * inverse[j] * by;
            terms[row * n + j] = fmaf(fmaf(d, d, -1.0f), by, by_entropy);
        }
    }
}

/* The same with a variance v + epsilon for each row, as gSDE has it (Raffin et al. 2021); distances are action - mean. */
TARGET static float
NAME(gaussian_by_row)(const Sizes *size, const Value *v)
{
    long rows = size->r, n = size->n;
    const float *means = v[0].f, *actions = v[1].f, *variances = v[2].f;
    float epsilon = (float)v[3].number;
    float *distances = v[4].out, *inverse = v[5].out, *log_prob = v[6].out, *entropy = v[7].out;
    float constant = 0.918938533f * (float)n;
    for (long row = 0; row < rows; row++) {
        float widths = 0.0f, sum = 0.0f;
        for (long e = row * n; e < (row + 1) * n; e++) {
            float variance = variances[e] + epsilon, d = actions[e] - means[e];
            distances[e] = d;
            inverse[e] = 1.0f / variance;
            widths += 0.5f * NAME(logf)(variance);
            sum = fmaf(d * inverse[e], d, sum);
        }
        log_prob[row] = fmaf(-0.5f, sum, -widths) - constant;
        entropy[row] = widths + (constant + 0.5f * (float)n);
    }
    return 0.0f;
}

/*   d log_prob / d mean = d / v                         d log_prob / d v = (d^2 / v - 1) / (2 v),  d entropy / d v = 1 / (2 v) */
TARGET static float
NAME(gaussian_by_row_backward)(const Sizes *size, const Value *v)
{
    long rows = size->r, n = size->n;
    const float *distances = v[0].f, *inverse = v[1].f, *by_log_prob = v[2].f;
    float by_entropy = (float)v[3].number;
    float *grad_means = v[4].out, *grad_variances = v[5].out;

    for (long row = 0; row < rows; row++) {
        float by = by_log_prob[row];
        EACH for (long e = row * n; e < (row + 1) * n; e++) {
            float d = distances[e], of_mean = d * inverse[e];
            grad_means[e] = of_mean * by;
            grad_variances[e] = fmaf(fmaf(of_mean, d, -1.0f), by, by_entropy) * (0.5f * inverse[e]);
        }
    }
    return 0.0f;
}

/* v = exp(2 log_std) */
TARGET static float
NAME(exp_2x)(const Sizes *size, const Value *v)
{
    long n = size->r;
    const float *log_std = v[0].f;
    float *variances = v[1].out;

    EACH for (long e = 0; e < n; e++) {
        variances[e] = NAME(expf)(2.0f * log_std[e]);
    }
    return 0.0f;
}

/* one number's */
TARGET static float
NAME(exp)(const Sizes *size, const Value *v)
{
    return NAME(expf)((float)v[0].number);
}
