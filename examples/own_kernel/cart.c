/* The cart's kernel, in C. */

#include <math.h>

#include "reactor_kernel.h"

void
cart_step(reactor_rows *r)
{
    REACTOR_COLUMN(double, pos, r, 0);
    REACTOR_COLUMN(double, speed, r, 1);
    REACTOR_COLUMN(double, last, r, 2);
    const double force = r->constants[0], friction = r->constants[1];
    const float *actions = r->actions;

    for (int64_t i = 0; i < r->n; i++) {
        if (!r->moving[i]) {
            continue;
        }
        double push = actions[i];
        push = push > -1.0 ? push : -1.0;
        push = push < 1.0 ? push : 1.0;
        if (reactor_random(r->rngs[i]) < 0.25) {
            push = last[i];
        }
        last[i] = push;
        const double acceleration = force * push - friction * speed[i] * fabs(speed[i]);
        speed[i] += 0.05 * acceleration;
        pos[i] += 0.05 * speed[i];
        r->terminated[i] = fabs(pos[i]) > 2.0;
        r->rewards[i] = -pos[i] * pos[i] - 0.01 * push * push - (r->terminated[i] ? 10.0 : 0.0);
    }
}

void
cart_reset(reactor_rows *r, int64_t i)
{
    REACTOR_COLUMN(double, pos, r, 0);
    REACTOR_COLUMN(double, speed, r, 1);
    REACTOR_COLUMN(double, last, r, 2);

    pos[i] = reactor_uniform(r->rngs[i], -1.0, 1.0);
    speed[i] = last[i] = 0.0;
}

void
cart_observe(reactor_rows *r)
{
    REACTOR_COLUMN(double, pos, r, 0);
    REACTOR_COLUMN(double, speed, r, 1);
    float *seen = r->observations;

    for (int64_t i = 0; i < r->n; i++) {
        seen[2 * i] = (float)pos[i];
        seen[2 * i + 1] = (float)speed[i];
    }
}
