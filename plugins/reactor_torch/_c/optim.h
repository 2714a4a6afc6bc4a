/* Optimisers, and what goes over all parameters, by a team of threads. */

#define OPTIMISERS(FUNCTION) \
    FUNCTION(adam, "rectified:bool decoupled:bool weights![r] gradients[r] first![r] second![r] steps:int lr:float beta1:float " \
             "beta2:float epsilon:float decay:float", "One step of Adam, or of RAdam if it is rectified.") \
    FUNCTION(rmsprop, "weights![r] gradients[r] squares![r] lr:float alpha:float epsilon:float decay:float", "One step of RMSprop.") \
    FUNCTION(polyak, "target![r] weights[r] tau:float", "Move a target `tau` of the way towards weights.") \
    FUNCTION(add, "sum![r,n] more[r,n]", "Add numbers to others.") \
    FUNCTION(norm, "gradients[r] : float", "The Euclidean norm.")

static double
power(double base, long long exponent) /* by multiplications alone: nobody promises the last bit of pow() */
{
    double result = 1.0;
    for (; exponent > 0; exponent >>= 1, base *= base) {
        if (exponent & 1) {
            result *= base;
        }
    }
    return result;
}

typedef struct {
    const Kernels *with;
    long size, parts;
    float *w, *first, *second;
    const float *g;
    const Adam *how;
    float tau, rest;
} Step;

static void
adam_part(void *what, long part)
{
    const Step *step = what;
    long begin = begin_of(step->size, part, step->parts, EVEN), end = begin_of(step->size, part + 1, step->parts, EVEN);
    float *first = step->first == NULL ? NULL : step->first + begin;
    step->with->adam(end - begin, step->w + begin, step->g + begin, first, step->second + begin, step->how);
}

static void
polyak_part(void *what, long part)
{
    const Step *step = what;
    long begin = begin_of(step->size, part, step->parts, EVEN), end = begin_of(step->size, part + 1, step->parts, EVEN);
    step->with->polyak(end - begin, step->w + begin, step->g + begin, step->tau, step->rest);
}

static void
add_part(void *what, long part)
{
    const Step *step = what;
    long begin = begin_of(step->size, part, step->parts, EVEN), end = begin_of(step->size, part + 1, step->parts, EVEN);
    step->with->add(step->w + begin, step->g + begin, end - begin);
}

/* Each number is for itself. */
static void
over_all(Step *step, Part part)
{
    enum { NUMBER = 64 }; /* from a far cache takes as long as so many multiply-adds of a product */
    Team *team = team_for(NUMBER * step->size);
    step->parts = parts_for(team, 1, NUMBER * step->size);
    compute_parts(team, step->parts, part, step);
}

/* Adam (Kingma, Ba 2015), with gradient g, or g + decay w if the decay is not decoupled (AdamW: Loshchilov, Hutter 2019):
 *   first += (1 - beta1) (g - first),  second = beta2 second + (1 - beta2) g^2
 *   w -= lr / (1 - beta1^steps) first / (sqrt(second) / sqrt(1 - beta2^steps) + epsilon)
 * RAdam (Liu et al. 2020) is without the second moment as long as its variance has no bound, and then takes a rectified step: with
 *   R = 2 / (1 - beta2) - 1,  rho = R - 2 steps beta2^steps / (1 - beta2^steps)
 * lr is multiplied by sqrt((rho - 4) (rho - 2) R / ((R - 4) (R - 2) rho)) where rho > 5, as torch has it (the paper says 4). */
static double
adam(const Kernels *with, const Sizes *n, const Value *v)
{
    int rectified = (int)v[0].whole, decoupled = (int)v[1].whole;
    long steps = v[6].whole;
    double lr = v[7].number, beta1 = v[8].number, beta2 = v[9].number, decay = v[11].number;
    double faded1 = 1.0 - power(beta1, steps), left2 = power(beta2, steps), faded2 = 1.0 - left2;
    Adam how = {
        .rest1 = (float)(1.0 - beta1), .beta2 = (float)beta2, .rest2 = (float)(1.0 - beta2), .step = (float)(lr / faded1),
        .root = (float)sqrt(faded2), .epsilon = (float)v[10].number, .decay = decoupled ? 0.0f : (float)decay,
        .keep = decoupled ? (float)(1.0 - lr * decay) : 1.0f, .momentum = 0,
    };
    if (rectified) {
        double most = 2.0 / (1.0 - beta2) - 1.0, rho = most - 2.0 * (double)steps * left2 / faded2;
        how.momentum = rho <= 5.0;
        if (!how.momentum) {
            double rect = sqrt((rho - 4.0) * (rho - 2.0) * most / ((most - 4.0) * (most - 2.0) * rho));
            how.step = (float)(lr / faded1 * rect * sqrt(faded2));
            how.root = 1.0f;
        }
    }
    Step step = {.with = with, .size = n->r, .w = v[2].out, .g = v[3].f, .first = v[4].out, .second = v[5].out, .how = &how};
    over_all(&step, adam_part);
    return 0.0;
}

/* RMSprop (Hinton 2012), with gradient g + decay w: squares = alpha squares + (1 - alpha) g^2,  w -= lr g / (sqrt(squares) + epsilon) */
static double
rmsprop(const Kernels *with, const Sizes *n, const Value *v)
{
    double alpha = v[4].number;
    Adam how = {
        .beta2 = (float)alpha, .rest2 = (float)(1.0 - alpha), .step = (float)v[3].number, .root = 1.0f,
        .epsilon = (float)v[5].number, .decay = (float)v[6].number, .keep = 1.0f,
    };
    Step step = {.with = with, .size = n->r, .w = v[0].out, .g = v[1].f, .second = v[2].out, .how = &how};
    over_all(&step, adam_part);
    return 0.0;
}

/* target = tau w + (1 - tau) target */
static double
polyak(const Kernels *with, const Sizes *n, const Value *v)
{
    double tau = v[2].number;
    Step step = {.with = with, .size = n->r, .w = v[0].out, .g = v[1].f, .tau = (float)tau, .rest = (float)(1.0 - tau)};
    over_all(&step, polyak_part);
    return 0.0;
}

static double
add(const Kernels *with, const Sizes *n, const Value *v)
{
    Step step = {.with = with, .size = n->r * n->n, .w = v[0].out, .g = v[1].f};
    over_all(&step, add_part);
    return 0.0;
}

static double
norm(const Kernels *with, const Sizes *n, const Value *v)
{
    return (double)(float)sqrt(with->sum_of_squares(n->r, v[0].f));
}
