/* Classic control: CartPole, Pendulum, the two mountain cars, Acrobot, operation by operation as Gymnasium's Python has them. */

#include "_batch.h"

#if defined(__GNUC__) && !defined(__clang__) && defined(__x86_64__) && defined(__linux__)
#define WIDEST __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define WIDEST
#endif

/* ---------------------------------------------------------------- CartPole */

/* Without friction (Barto, Sutton, Anderson 1983; corrected by Florian 2007), M = total_mass, m l = polemass_length:
 *   t = (F + m l theta_dot^2 sin theta) / M
 *   theta_acc = (g sin theta - cos theta t) / (l (4/3 - m cos^2 theta / M)),  x_acc = t - m l theta_acc cos theta / M
 * Euler's method: positions move by the velocities before the step. */

/* state: x, x_dot, theta, theta_dot, each of n. places: whether the episode has been terminated; who steps on is warned by Python.
 * p: gravity, masspole, total_mass, length, polemass_length, force_mag, tau, theta_threshold, x_threshold; q: Sutton and Barto's rewards */

static inline void
cartpole_write(const Rows *b, int64_t i, void *where)
{
    float *out = where;
    const double *s = b->state;
    const int64_t n = b->n;

    out[0] = (float)s[i];
    out[1] = (float)s[n + i];
    out[2] = (float)s[2 * n + i];
    out[3] = (float)s[3 * n + i];
}

static inline void
cartpole_begin(Rows *b, int64_t i)
{
    for (int k = 0; k < 4; k++) {
        b->state[k * b->n + i] = reactor_uniform(b->gens[i], b->low[0], b->high[0]);
    }
    ((uint8_t *)b->places)[i] = 0;
}

/* All rows at once, those that are about to be reset too: what becomes of them is not used. */
WIDEST static void
cartpole_move(Rows *b)
{
    const int64_t n = b->n;
    double *restrict x = b->state, *restrict xd = x + n, *restrict th = x + 2 * n, *restrict thd = x + 3 * n;
    const double *restrict sintheta = b->work, *restrict costheta = b->work + n;
    const int64_t *restrict actions = b->actions;
    const double gravity = b->p[0], masspole = b->p[1], total = b->p[2], length = b->p[3], polemass_length = b->p[4];
    const double force_mag = b->p[5], tau = b->p[6];

    for (int64_t i = 0; i < n; i++) {
        const double force = actions[i] == 1 ? force_mag : -force_mag;
        const double s = sintheta[i], c = costheta[i], v = thd[i];
        const double temp = (force + polemass_length * (v * v) * s) / total;
        const double thetaacc = (gravity * s - c * temp) / (length * (4.0 / 3.0 - masspole * (c * c) / total));
        const double xacc = temp - polemass_length * thetaacc * c / total;

        x[i] = x[i] + tau * xd[i];
        xd[i] = xd[i] + tau * xacc;
        th[i] = th[i] + tau * v;
        thd[i] = v + tau * thetaacc;
    }
}

static inline void
cartpole_judge(Rows *b, int64_t i, int *ended)
{
    const double x = b->state[i], th = b->state[2 * b->n + i], far = b->p[8], wide = b->p[7];

    *ended = x < -far || x > far || th < -wide || th > wide;
    ((uint8_t *)b->places)[i] = (uint8_t)*ended;
    b->rewards[i] = b->q[0] ? (*ended ? -1.0 : 0.0) : 1.0;
}

static int64_t
cartpole_step(Rows *b)
{
    const uint8_t *over = b->places;

    for (int64_t i = 0; i < b->n; i++) {
        if (over[i] && !(b->mode == NEXT_STEP && b->pending[i])) {
            return REFUSED;
        }
    }
    call_many(b->sin, b->sin_data, b->state + 2 * b->n, b->work, b->n);
    call_many(b->cos, b->cos_data, b->state + 2 * b->n, b->work + b->n, b->n);
    cartpole_move(b);
    MOVE_ROWS(cartpole_judge);
}

BEGIN_ROW(cartpole_reset, cartpole_begin)
WRITE_ROWS(cartpole_observe, cartpole_write)

/* ---------------------------------------------------------------- Pendulum */

/* theta_dot += (3 g / (2 l) sin theta + 3 / (m l^2) u) dt,  theta += theta_dot dt by the new one,  theta_dot and u clipped
 * reward = - (angle^2 + 0.1 theta_dot^2 + 0.001 u^2), angle and theta_dot as they were, angle within [-pi, pi) */

/* state: theta, theta_dot, the last torque, each of n. p: max_speed, max_torque, dt, 3 * g / (2 * l), 3.0 / (m * l ** 2), pi */

static inline double
modulo(double a, double b) /* numpy's remainder, b > 0 */
{
    double mod = fmod(a, b);

    if (mod) {
        if (mod < 0) {
            mod += b;
        }
    } else {
        mod = copysign(0.0, b);
    }
    return mod;
}

static inline void
pendulum_write(const Rows *b, int64_t i, void *where)
{
    float *out = where;
    const double th = b->state[i];

    out[0] = (float)call_one(b->cos, b->cos_data, th);
    out[1] = (float)call_one(b->sin, b->sin_data, th);
    out[2] = (float)b->state[b->n + i];
}

static inline void
pendulum_begin(Rows *b, int64_t i)
{
    for (int k = 0; k < 2; k++) {
        b->state[k * b->n + i] = reactor_uniform(b->gens[i], b->low[k], b->high[k]);
    }
    ((uint8_t *)b->places)[i] = 0;
}

static inline void
pendulum_move(Rows *b, int64_t i, int *ended)
{
    const double th = b->state[i], thdot = b->state[b->n + i];
    const double max_speed = b->p[0], max_torque = b->p[1], dt = b->p[2], pi = b->p[5];
    const double exponent = square_d;
    double turn, cost; /* what the torque does, and what it costs: numbers of its own type */

    if (b->wide) {
        const double u = clipped(((const double *)b->actions)[i], -max_torque, max_torque);
        turn = b->p[4] * u;
        cost = 0.001 * pow(u, exponent);
        b->state[2 * b->n + i] = u;
    } else {
        float u = ((const float *)b->actions)[i];
        const float most = (float)max_torque;
        u = u < -most ? -most : u > most ? most : u;
        turn = (double)((float)b->p[4] * u);
        cost = (double)(0.001f * powf(u, square_f));
        b->state[2 * b->n + i] = u;
    }
    ((uint8_t *)b->places)[i] = b->wide ? 2 : 1;
    const double angle = modulo(th + pi, 2 * pi) - pi;
    const double costs = pow(angle, exponent) + 0.1 * pow(thdot, exponent) + cost;
    const double newthdot = clipped(thdot + (b->p[3] * call_one(b->sin, b->sin_data, th) + turn) * dt, -max_speed, max_speed);
    b->state[i] = th + newthdot * dt;
    b->state[b->n + i] = newthdot;
    b->rewards[i] = -costs;
    *ended = 0;
}

static int64_t
pendulum_step(Rows *b)
{
    MOVE_ROWS(pendulum_move);
}

BEGIN_ROW(pendulum_reset, pendulum_begin)
WRITE_ROWS(pendulum_observe, pendulum_write)

/* ---------------------------------------------------------------- MountainCar */

/* velocity += (action - 1) force - gravity cos(3 position),  position += velocity, both clipped (Moore 1990); a wall stops the car. */

/* state: position, velocity, each of n. places: what env.state is: AN_ARRAY after a reset, then a pair, with an int for a velocity
 * that a wall has stopped. p: min_position, max_position, max_speed, goal_position, goal_velocity, force, gravity. */

enum { PAIR, AN_ARRAY, STOPPED };

static inline void
car_write(const Rows *b, int64_t i, void *where)
{
    float *out = where;

    out[0] = (float)b->state[i];
    out[1] = (float)b->state[b->n + i];
}

static inline void
car_begin(Rows *b, int64_t i)
{
    b->state[i] = reactor_uniform(b->gens[i], b->low[0], b->high[0]);
    b->state[b->n + i] = 0.0;
    ((uint8_t *)b->places)[i] = AN_ARRAY;
}

static inline void
car_move(Rows *b, int64_t i, int *ended)
{
    const double *p = b->p;
    double position = b->state[i], velocity = b->state[b->n + i];
    const double action = (double)(((const int64_t *)b->actions)[i] - 1);
    uint8_t kind = PAIR;

    velocity = clipped(velocity + (action * p[5] + cos(3 * position) * (-p[6])), -p[2], p[2]); /* Python's math.cos is libm's */
    position = clipped(position + velocity, p[0], p[1]);
    if (position == p[0] && velocity < 0) {
        velocity = 0;
        kind = STOPPED;
    }
    *ended = position >= p[3] && velocity >= p[4];
    b->rewards[i] = -1.0;
    b->state[i] = position;
    b->state[b->n + i] = velocity;
    ((uint8_t *)b->places)[i] = kind;
}

static int64_t
car_step(Rows *b)
{
    MOVE_ROWS(car_move);
}

BEGIN_ROW(car_reset, car_begin)
WRITE_ROWS(car_observe, car_write)

/* ---------------------------------------------------------------- MountainCarContinuous */

/* velocity += force power - 0.0025 cos(3 position),  position += velocity, both clipped,  reward = 100 at the goal, - 0.1 action^2 */

/* state: position, velocity, each of n: float64 after a reset (places: AN_ARRAY), then float32. A number that is clipped becomes
 * Python's, which takes the type of what it meets. p: min_position, max_position, max_speed, goal_position, goal_velocity, power */

static inline void
engine_move(Rows *b, int64_t i, int *ended)
{
    const double *p = b->p;
    const float given = ((const float *)b->actions)[i];
    const int python = -1.0f > given || 1.0f < given; /* then the force is Python's -1.0 or 1.0 */
    const double hard = -1.0f > given ? -1.0 : 1.0;

    if (((const uint8_t *)b->places)[i] == AN_ARRAY) {
        double position = b->state[i], velocity = b->state[b->n + i];
        const double pull = 0.0025 * cos(3 * position);
        velocity += python ? hard * p[5] - pull : (double)(given * (float)p[5] - (float)pull);
        velocity = velocity > p[2] ? p[2] : velocity;
        velocity = velocity < -p[2] ? -p[2] : velocity;
        position += velocity;
        position = position > p[1] ? p[1] : position;
        position = position < p[0] ? p[0] : position;
        if (position == p[0] && velocity < 0) {
            velocity = 0;
        }
        *ended = position >= p[3] && velocity >= p[4];
        b->state[i] = (double)(float)position;
        b->state[b->n + i] = (double)(float)velocity;
        ((uint8_t *)b->places)[i] = PAIR;
    } else {
        const float low = (float)p[0], high = (float)p[1], fast = (float)p[2];
        float position = (float)b->state[i], velocity = (float)b->state[b->n + i];
        const double pull = 0.0025 * cos((double)(3 * position));
        velocity += python ? (float)(hard * p[5] - pull) : given * (float)p[5] - (float)pull;
        double exact = NAN, exact_fast = NAN; /* Python's number, where it is one */
        if (velocity > fast) {
            velocity = fast;
            exact_fast = p[2];
        }
        if (velocity < -fast) {
            velocity = -fast;
            exact_fast = -p[2];
        }
        position += velocity;
        if (position > high) {
            position = high;
            exact = p[1];
        }
        if (position < low) {
            position = low;
            exact = p[0];
        }
        if (position == low && velocity < 0) {
            velocity = 0;
            exact_fast = 0;
        }
        *ended = (isnan(exact) ? position >= (float)p[3] : exact >= p[3])
                 && (isnan(exact_fast) ? velocity >= (float)p[4] : exact_fast >= p[4]);
        b->state[i] = position;
        b->state[b->n + i] = velocity;
    }
    const double reward = *ended ? 100.0 : 0.0;
    b->rewards[i] = reward - pow((double)given, square_d) * 0.1;
}

static int64_t
engine_step(Rows *b)
{
    MOVE_ROWS(engine_move);
}

/* ---------------------------------------------------------------- Acrobot */

/* Two links, a torque `a` at the second joint (Sutton 1996). s: theta1, theta2 and their velocities w1, w2; I the moment of inertia of each:
 *   d1 = m1 lc1^2 + m2 (l1^2 + lc2^2 + 2 l1 lc2 cos theta2) + 2 I,  d2 = m2 (lc2^2 + l1 lc2 cos theta2) + I
 *   phi2 = m2 lc2 g cos(theta1 + theta2 - pi / 2)
 *   phi1 = - m2 l1 lc2 (w2^2 + 2 w2 w1) sin theta2 + (m1 lc1 + m2 l1) g cos(theta1 - pi / 2) + phi2
 *   w2' = (a + d2 / d1 phi1 - m2 l1 lc2 w1^2 sin theta2 - phi2) / (m2 lc2^2 + I - d2^2 / d1),  w1' = - (d2 w2' + phi1) / d1
 * The paper's equation is without w1^2. A step is one of Runge and Kutta's fourth order. */

/* state: four numbers of each row. places: AN_ARRAY after a reset, when they are float32. q: the paper's equation instead of the
 * book's. p: products of constants as Python multiplies them, in the order of use below; then dt, max_vel_1, max_vel_2, pi. */

enum { M1_LC1, L1_LC2, TWO, M2, MOI, LC2_2, L1LC2, GRAVITY2, PULL, PUSH, GRAVITY1, BOOK, M2_LC2, DT, FAST1, FAST2, PI };

enum { THETA2, SIN2, COS2, SUM, COS_SUM, BEFORE, COS_BEFORE, SLOPES, STAGES = 4, ACROBOT_WORK = SLOPES + 4 * STAGES + 4 };

static inline void
acrobot_write(const Rows *b, int64_t i, void *where)
{
    float *out = where;
    const double *s = b->state + 4 * i;

    if (((const uint8_t *)b->places)[i] == AN_ARRAY) {
        out[0] = call_one_f(b->cos_f, b->cos_f_data, (float)s[0]);
        out[1] = call_one_f(b->sin_f, b->sin_f_data, (float)s[0]);
        out[2] = call_one_f(b->cos_f, b->cos_f_data, (float)s[1]);
        out[3] = call_one_f(b->sin_f, b->sin_f_data, (float)s[1]);
    } else {
        out[0] = (float)call_one(b->cos, b->cos_data, s[0]);
        out[1] = (float)call_one(b->sin, b->sin_data, s[0]);
        out[2] = (float)call_one(b->cos, b->cos_data, s[1]);
        out[3] = (float)call_one(b->sin, b->sin_data, s[1]);
    }
    out[4] = (float)s[2];
    out[5] = (float)s[3];
}

static inline void
acrobot_begin(Rows *b, int64_t i)
{
    for (int k = 0; k < 4; k++) {
        b->state[4 * i + k] = (double)(float)reactor_uniform(b->gens[i], b->low[0], b->high[0]);
    }
    ((uint8_t *)b->places)[i] = AN_ARRAY;
}

/* The slopes of all rows at the points `y`, (n, 4). */
static void
acrobot_slopes(Rows *b, const double *y, double *slopes)
{
    const int64_t n = b->n;
    const double *p = b->p, exponent = square_d, half = p[PI] / 2;
    double *work = b->work, *c2 = work + COS2 * n, *s2 = work + SIN2 * n;

    for (int64_t i = 0; i < n; i++) {
        work[THETA2 * n + i] = y[4 * i + 1];
        work[SUM * n + i] = y[4 * i] + y[4 * i + 1] - half;
        work[BEFORE * n + i] = y[4 * i] - half;
    }
    call_many(b->sin, b->sin_data, work + THETA2 * n, s2, n);
    call_many(b->cos, b->cos_data, work + THETA2 * n, c2, n);
    call_many(b->cos, b->cos_data, work + SUM * n, work + COS_SUM * n, n);
    call_many(b->cos, b->cos_data, work + BEFORE * n, work + COS_BEFORE * n, n);
    for (int64_t i = 0; i < n; i++) {
        const double a = (double)(((const int64_t *)b->actions)[i] - 1), dtheta1 = y[4 * i + 2], dtheta2 = y[4 * i + 3];
        const double d1 = p[M1_LC1] + p[M2] * (p[L1_LC2] + p[TWO] * c2[i]) + p[MOI] + p[MOI];
        const double d2 = p[M2] * (p[LC2_2] + p[L1LC2] * c2[i]) + p[MOI];
        const double phi2 = p[GRAVITY2] * work[COS_SUM * n + i];
        const double phi1 = p[PULL] * pow(dtheta2, exponent) * s2[i] - p[PUSH] * dtheta2 * dtheta1 * s2[i]
                            + p[GRAVITY1] * work[COS_BEFORE * n + i] + phi2;
        const double below = p[M2_LC2] + p[MOI] - pow(d2, exponent) / d1;
        double dd2;
        if (b->q[0]) {
            dd2 = (a + d2 / d1 * phi1 - phi2) / below;
        } else {
            dd2 = (a + d2 / d1 * phi1 - p[BOOK] * pow(dtheta1, exponent) * s2[i] - phi2) / below;
        }
        slopes[4 * i] = dtheta1;
        slopes[4 * i + 1] = dtheta2;
        slopes[4 * i + 2] = -(d2 * dd2 + phi1) / d1;
        slopes[4 * i + 3] = dd2;
    }
}

static inline double
wrapped(double x, double pi)
{
    /* M - m of Gymnasium's wrap(), and its loops: fmod() would have other bits. */
    const double diff = pi - -pi;

    while (x > pi) {
        x = x - diff;
    }
    while (x < -pi) {
        x = x + diff;
    }
    return x;
}

/* Python's min(max(x, -most), most). */
static inline double
bounded(double x, double most)
{
    const double above = -most > x ? -most : x;

    return most < above ? most : above;
}

/* The states of all rows after the step, in `work`; states stay as they are. */
static double *
acrobot_move(Rows *b)
{
    const int64_t n = b->n;
    /* dt is t[1] - t[0] of [0, dt], as Gymnasium's rk4() has it. */
    const double dt = b->p[DT] - 0, dt2 = dt / 2.0, *s = b->state;
    double *k1 = b->work + SLOPES * n, *k2 = k1 + 4 * n, *k3 = k2 + 4 * n, *k4 = k3 + 4 * n, *y = k4 + 4 * n;

    acrobot_slopes(b, s, k1);
    for (int64_t i = 0; i < 4 * n; i++) {
        y[i] = s[i] + dt2 * k1[i];
    }
    acrobot_slopes(b, y, k2);
    for (int64_t i = 0; i < 4 * n; i++) {
        y[i] = s[i] + dt2 * k2[i];
    }
    acrobot_slopes(b, y, k3);
    for (int64_t i = 0; i < 4 * n; i++) {
        y[i] = s[i] + dt * k3[i];
    }
    acrobot_slopes(b, y, k4);
    for (int64_t i = 0; i < 4 * n; i++) {
        y[i] = s[i] + dt / 6.0 * (k1[i] + 2 * k2[i] + 2 * k3[i] + k4[i]);
    }
    return y;
}

static inline void
acrobot_judge(Rows *b, int64_t i, int *ended)
{
    const double *p = b->p;
    double *s = b->state + 4 * i;

    memcpy(s, b->work + (SLOPES + 4 * STAGES) * b->n + 4 * i, 4 * sizeof *s);
    s[0] = wrapped(s[0], p[PI]);
    s[1] = wrapped(s[1], p[PI]);
    s[2] = bounded(s[2], p[FAST1]);
    s[3] = bounded(s[3], p[FAST2]);
    ((uint8_t *)b->places)[i] = PAIR;
    *ended = -call_one(b->cos, b->cos_data, s[0]) - call_one(b->cos, b->cos_data, s[1] + s[0]) > 1.0;
    b->rewards[i] = *ended ? 0.0 : -1.0;
}

static int64_t
acrobot_step(Rows *b)
{
    const double *y = acrobot_move(b);

    for (int64_t i = 0; i < 4 * b->n; i++) {
        if (!isfinite(y[i])) {
            return REFUSED; /* to wrap an infinite angle takes for ever */
        }
    }
    MOVE_ROWS(acrobot_judge);
}

BEGIN_ROW(acrobot_reset, acrobot_begin)
WRITE_ROWS(acrobot_observe, acrobot_write)
