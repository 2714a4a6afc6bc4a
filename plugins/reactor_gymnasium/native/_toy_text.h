/* Toy text: what is a table of outcomes (FrozenLake, CliffWalking, Taxi), and Blackjack. */

#include "_batch.h"

/* ---------------------------------------------------------------- tables with at most three outcomes */

/* places: state; whether it is numpy's int64, and not of the table's own type; the last action, -1 after a reset; whether the
 * passenger is fickle. q: states, actions, whether this is a Taxi, whether its passengers may be fickle. p: how probably. */

enum { STATE, IS_INT64, LAST_ACTION, FICKLE, CELLS };

static inline void
table_write(const Rows *b, int64_t i, void *where)
{
    *(int64_t *)where = ((const int64_t *)b->places)[CELLS * i + STATE];
}

/* np.argmax(cumulated > x) */
static inline int64_t
picked(const double *cumulated, int64_t count, double x)
{
    for (int64_t k = 0; k < count; k++) {
        if (cumulated[k] > x) {
            return k;
        }
    }
    return 0;
}

static inline void
table_begin(Rows *b, int64_t i)
{
    int64_t *row = (int64_t *)b->places + CELLS * i;
    const reactor_rng *gen = b->gens[i];

    row[STATE] = picked(b->start, b->q[0], gen->next_double(gen->state));
    row[IS_INT64] = 1;
    row[LAST_ACTION] = -1;
    row[FICKLE] = b->q[3] && gen->next_double(gen->state) < b->p[0];
    b->probs[i] = 1.0;
}

/* Taxi's state: ((row * 5 + column) * 5 + passenger) * 4 + destination */
static inline void
taxi_change_mind(Rows *b, int64_t i, int64_t *row, int64_t before)
{
    const int64_t after = row[STATE];

    if (row[FICKLE] && before / 4 % 5 == 4 && after / 20 != before / 20) {
        const int64_t wanted = before % 4, drawn = reactor_integers(b->gens[i], 0, 3);
        row[FICKLE] = 0;
        row[STATE] = after / 4 * 4 + drawn + (drawn >= wanted);
        row[IS_INT64] = 1;
    }
}

static inline void
table_move(Rows *b, int64_t i, int *ended)
{
    int64_t *row = (int64_t *)b->places + CELLS * i;
    const int64_t action = ((const int64_t *)b->actions)[i], before = row[STATE];
    const int64_t cell = (before * b->q[1] + action) * 9;
    const double *table = b->table + cell;
    const int64_t *next = b->next + cell;
    const reactor_rng *gen = b->gens[i];
    const int64_t k = picked(table, next[6], gen->next_double(gen->state));

    b->probs[i] = table[3 + k];
    b->rewards[i] = table[6 + k];
    row[STATE] = next[k];
    row[IS_INT64] = 0;
    row[LAST_ACTION] = action;
    if (b->q[2] && b->q[3]) {
        taxi_change_mind(b, i, row, before);
    }
    *ended = (int)next[3 + k];
}

static int64_t
table_step(Rows *b)
{
    MOVE_ROWS(table_move);
}

BEGIN_ROW(table_reset, table_begin)
WRITE_ROWS(table_observe, table_write)

/* ---------------------------------------------------------------- Blackjack */

/* places: 64 bytes of each row, two hands and what is shown of the dealer's. q: sab, natural. */

enum { MOST_CARDS = 24 };

typedef struct {
    uint8_t sum, ace, count, cards[MOST_CARDS];
} Hand;

typedef struct {
    Hand player, dealer;
    uint8_t suit, face, unused[8];
} Table;

typedef char table_is_64_bytes[sizeof(Table) == 64 ? 1 : -1];

static inline void
deal(const Rows *b, int64_t i, Hand *hand)
{
    static const uint8_t deck[13] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 10, 10, 10};
    const uint8_t card = deck[reactor_integers(b->gens[i], 0, 13)];

    hand->cards[hand->count++] = card;
    hand->sum = (uint8_t)(hand->sum + card);
    hand->ace |= card == 1;
}

static inline int
usable_ace(const Hand *hand)
{
    return hand->ace && hand->sum + 10 <= 21;
}

static inline int
total(const Hand *hand)
{
    return usable_ace(hand) ? hand->sum + 10 : hand->sum;
}

static inline int
score(const Hand *hand)
{
    return total(hand) > 21 ? 0 : total(hand);
}

static inline int
is_natural(const Hand *hand)
{
    return hand->count == 2 && hand->ace && hand->sum == 11;
}

static inline void
blackjack_write(const Rows *b, int64_t i, void *where)
{
    int64_t *out = where;
    const Table *table = (const Table *)b->places + i;

    out[0] = total(&table->player);
    out[1] = table->dealer.cards[0];
    out[2] = usable_ace(&table->player);
}

static inline void
blackjack_begin(Rows *b, int64_t i)
{
    Table *table = (Table *)b->places + i;

    memset(table, 0, sizeof *table);
    deal(b, i, &table->dealer);
    deal(b, i, &table->dealer);
    deal(b, i, &table->player);
    deal(b, i, &table->player);
    table->suit = (uint8_t)reactor_integers(b->gens[i], 0, 4);
    if (table->dealer.cards[0] == 10) {
        table->face = (uint8_t)reactor_integers(b->gens[i], 0, 3); /* jack, queen or king */
    }
}

static inline void
blackjack_move(Rows *b, int64_t i, int *ended)
{
    Table *table = (Table *)b->places + i;
    Hand *player = &table->player, *dealer = &table->dealer;
    double reward = 0.0;

    if (((const int64_t *)b->actions)[i]) {
        deal(b, i, player);
        *ended = total(player) > 21;
        if (*ended) {
            reward = -1.0;
        }
    } else {
        *ended = 1;
        while (total(dealer) < 17) {
            deal(b, i, dealer);
        }
        const int ours = score(player), theirs = score(dealer);
        reward = (double)(ours > theirs) - (double)(ours < theirs);
        if (b->q[0] && is_natural(player) && !is_natural(dealer)) {
            reward = 1.0;
        } else if (!b->q[0] && b->q[1] && is_natural(player) && reward == 1.0) {
            reward = 1.5;
        }
    }
    b->rewards[i] = reward;
}

static int64_t
blackjack_step(Rows *b)
{
    const Table *tables = b->places;

    for (int64_t i = 0; i < b->n; i++) {
        if (tables[i].player.count == MOST_CARDS) {
            return REFUSED; /* somebody goes on hitting after the end */
        }
    }
    MOVE_ROWS(blackjack_move);
}

BEGIN_ROW(blackjack_reset, blackjack_begin)
WRITE_ROWS(blackjack_observe, blackjack_write)
