/* Distributions of actions: log-probabilities, entropies, and their derivatives; computed in _losses.h. */

FUNCTION(py_squashed_gaussian)
{
    ARGUMENTS(10, "squashed_gaussian(mean, raw, noise, actions, spread, slack, log_prob, part, low, high)");
    const float *mean = IN(0, "mean", -1);
    Py_ssize_t size = LENGTH(0);
    const float *raw = IN(1, "raw", size), *noise = IN(2, "noise", size);
    float *actions = OUT(3, "actions", size), *spread = OUT(4, "spread", size), *slack = OUT(5, "slack", size);
    float *log_prob = OUT(6, "log_prob", -1), *part = OUT(7, "part", size), low = number(args[8]), high = number(args[9]);
    Py_ssize_t rows = LENGTH(6);
    WHOLE_ROWS
    UNLESS_FAILED
    if (rows) {
        kernels->squashed_gaussian((long)rows, (long)(size / rows), low, high, mean, raw, noise, actions, spread, slack, log_prob, part);
    }
    return done(&held);
}

FUNCTION(py_squashed_gaussian_backward)
{
    ARGUMENTS(10, "squashed_gaussian_backward(by_actions, by_log_prob, actions, spread, slack, raw, by_mean, by_log_std, low, high)");
    const float *by_actions = IN(0, "by_actions", -1);
    Py_ssize_t size = LENGTH(0);
    const float *actions = IN(2, "actions", size), *spread = IN(3, "spread", size), *slack = IN(4, "slack", size);
    const float *raw = IN(5, "raw", size);
    float *by_mean = OUT(6, "by_mean", size), *by_log_std = OUT(7, "by_log_std", size);
    float by = number(args[1]), low = number(args[8]), high = number(args[9]);
    UNLESS_FAILED
    kernels->squashed_gaussian_backward((long)size, low, high, by_actions, by, actions, spread, slack, raw, by_mean, by_log_std);
    return done(&held);
}

/* Numbers of the logits of a row; -1 with an error set if a choice has none, or one that is taken is not there. */
static long
width_of(long rows, long choices, const int64_t *sizes, const int64_t *taken)
{
    long width = 0;
    for (long choice = 0; choice < choices; choice++) {
        if (sizes[choice] < 1) {
            PyErr_Format(PyExc_ValueError, "sizes must be positive, got %lld", (long long)sizes[choice]);
            return -1;
        }
        width += (long)sizes[choice];
        for (long row = 0; row < rows; row++) {
            int64_t one = taken[row * choices + choice];
            if (one < 0 || one >= sizes[choice]) {
                PyErr_Format(PyExc_IndexError, "action %lld is not one of %lld", (long long)one, (long long)sizes[choice]);
                return -1;
            }
        }
    }
    return width;
}

FUNCTION(py_categorical)
{
    ARGUMENTS(9, "categorical(sizes, logits, taken, masks, logs, probabilities, entropies, log_prob, entropy)");
    const int64_t *sizes = NUMBERS(0, "sizes", -1);
    long choices = (long)LENGTH(0);
    float *log_prob = OUT(7, "log_prob", -1);
    long rows = (long)LENGTH(1);
    const int64_t *taken = NUMBERS(2, "taken", (Py_ssize_t)rows * choices);
    long width = held.failed ? -1 : width_of(rows, choices, sizes, taken);
    if (width < 0) {
        held.failed = 1;
    }
    Py_ssize_t size = (Py_ssize_t)rows * width;
    const float *logits = IN(1, "logits", size);
    const uint8_t *masks = array_of(&held, args[3], "masks", "?B", size, 0, 1);
    float *logs = OUT(4, "logs", size), *probabilities = OUT(5, "probabilities", size);
    float *entropies = OUT(6, "entropies", (Py_ssize_t)rows * choices), *entropy = OUT(8, "entropy", rows);
    UNLESS_FAILED
    kernels->categorical(rows, width, choices, sizes, logits, taken, masks, logs, probabilities, entropies, log_prob, entropy);
    return done(&held);
}

FUNCTION(py_categorical_backward)
{
    ARGUMENTS(9, "categorical_backward(sizes, taken, masks, logs, probabilities, entropies, by_log_prob, by_entropy, gradient)");
    const int64_t *sizes = NUMBERS(0, "sizes", -1);
    long choices = (long)LENGTH(0);
    const float *by_log_prob = IN(6, "by_log_prob", -1);
    long rows = (long)LENGTH(1);
    const int64_t *taken = NUMBERS(1, "taken", (Py_ssize_t)rows * choices);
    long width = held.failed ? -1 : width_of(rows, choices, sizes, taken);
    if (width < 0) {
        held.failed = 1;
    }
    Py_ssize_t size = (Py_ssize_t)rows * width;
    const uint8_t *masks = array_of(&held, args[2], "masks", "?B", size, 0, 1);
    const float *logs = IN(3, "logs", size), *probabilities = IN(4, "probabilities", size);
    const float *entropies = IN(5, "entropies", (Py_ssize_t)rows * choices);
    float by_entropy = number(args[7]);
    float *gradient = OUT(8, "gradient", size);
    UNLESS_FAILED
    kernels->categorical_backward(rows, width, choices, sizes, taken, masks, logs, probabilities, entropies, by_log_prob, by_entropy, gradient);
    return done(&held);
}

FUNCTION(py_bernoulli)
{
    ARGUMENTS(6, "bernoulli(logits, taken, probabilities, terms, log_prob, entropy)");
    const float *logits = IN(0, "logits", -1);
    Py_ssize_t size = LENGTH(0);
    const float *taken = IN(1, "taken", size);
    float *probabilities = OUT(2, "probabilities", size), *terms = OUT(3, "terms", size), *log_prob = OUT(4, "log_prob", -1);
    Py_ssize_t rows = LENGTH(4);
    float *entropy = OUT(5, "entropy", rows);
    WHOLE_ROWS
    UNLESS_FAILED
    if (rows) {
        kernels->bernoulli((long)rows, (long)(size / rows), logits, taken, probabilities, terms, log_prob, entropy);
    }
    return done(&held);
}

FUNCTION(py_bernoulli_backward)
{
    ARGUMENTS(6, "bernoulli_backward(logits, taken, probabilities, by_log_prob, by_entropy, gradient)");
    const float *logits = IN(0, "logits", -1);
    Py_ssize_t size = LENGTH(0);
    const float *taken = IN(1, "taken", size), *probabilities = IN(2, "probabilities", size), *by_log_prob = IN(3, "by_log_prob", -1);
    Py_ssize_t rows = LENGTH(3);
    float by_entropy = number(args[4]);
    float *gradient = OUT(5, "gradient", size);
    WHOLE_ROWS
    UNLESS_FAILED
    if (rows) {
        kernels->bernoulli_backward((long)rows, (long)(size / rows), logits, taken, probabilities, by_log_prob, by_entropy, gradient);
    }
    return done(&held);
}

FUNCTION(py_gaussian)
{
    ARGUMENTS(7, "gaussian(means, actions, log_std, inverse, distances, log_prob, entropy)");
    const float *log_std = IN(2, "log_std", -1);
    Py_ssize_t n = LENGTH(0);
    float *log_prob = OUT(5, "log_prob", -1);
    Py_ssize_t rows = LENGTH(1);
    const float *means = IN(0, "means", rows * n), *actions = IN(1, "actions", rows * n);
    float *inverse = OUT(3, "inverse", n), *distances = OUT(4, "distances", rows * n), *entropy = OUT(6, "entropy", rows);
    UNLESS_FAILED
    kernels->gaussian((long)rows, (long)n, means, actions, log_std, inverse, distances, log_prob, entropy);
    return done(&held);
}

FUNCTION(py_gaussian_backward)
{
    ARGUMENTS(7, "gaussian_backward(inverse, distances, by_log_prob, by_entropy, gradient, terms, log_std_gradient)");
    const float *inverse = IN(0, "inverse", -1);
    Py_ssize_t n = LENGTH(0);
    const float *by_log_prob = IN(2, "by_log_prob", -1);
    Py_ssize_t rows = LENGTH(1);
    const float *distances = IN(1, "distances", rows * n);
    float by_entropy = number(args[3]);
    float *gradient = OUT(4, "gradient", rows * n), *terms = OUT(5, "terms", rows * n), *by_log_std = OUT(6, "log_std_gradient", n);
    UNLESS_FAILED
    kernels->gaussian_backward((long)rows, (long)n, inverse, distances, by_log_prob, by_entropy, gradient, terms);
    kernels->column_sums(VALUES, (long)rows, (long)n, terms, (long)n, NULL, NULL, 0, by_log_std);
    return done(&held);
}

FUNCTION(py_gaussian_by_row)
{
    ARGUMENTS(8, "gaussian_by_row(means, actions, variances, epsilon, distances, inverse, log_prob, entropy)");
    const float *means = IN(0, "means", -1);
    Py_ssize_t size = LENGTH(0);
    const float *actions = IN(1, "actions", size), *variances = IN(2, "variances", size);
    float epsilon = number(args[3]);
    float *distances = OUT(4, "distances", size), *inverse = OUT(5, "inverse", size), *log_prob = OUT(6, "log_prob", -1);
    Py_ssize_t rows = LENGTH(5);
    float *entropy = OUT(7, "entropy", rows);
    WHOLE_ROWS
    UNLESS_FAILED
    if (rows) {
        kernels->gaussian_by_row((long)rows, (long)(size / rows), means, actions, variances, epsilon, distances, inverse, log_prob, entropy);
    }
    return done(&held);
}

FUNCTION(py_gaussian_by_row_backward)
{
    ARGUMENTS(6, "gaussian_by_row_backward(distances, inverse, by_log_prob, by_entropy, by_means, by_variances)");
    const float *distances = IN(0, "distances", -1);
    Py_ssize_t size = LENGTH(0);
    const float *inverse = IN(1, "inverse", size), *by_log_prob = IN(2, "by_log_prob", -1);
    Py_ssize_t rows = LENGTH(2);
    float by_entropy = number(args[3]);
    float *by_means = OUT(4, "by_means", size), *by_variances = OUT(5, "by_variances", size);
    WHOLE_ROWS
    UNLESS_FAILED
    if (rows) {
        kernels->gaussian_by_row_backward((long)rows, (long)(size / rows), distances, inverse, by_log_prob, by_entropy, by_means, by_variances);
    }
    return done(&held);
}

FUNCTION(py_exp_2x)
{
    ARGUMENTS(2, "exp_2x(log_std, variances)");
    const float *log_std = IN(0, "log_std", -1);
    Py_ssize_t n = LENGTH(0);
    float *variances = OUT(1, "variances", n);
    UNLESS_FAILED
    kernels->exp_2x((long)n, log_std, variances);
    return done(&held);
}
