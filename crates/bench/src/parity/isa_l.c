/* ISA-L's parity kernels on the same shapes that plexum measures: compiled and run by `plexum bench parity` where a C compiler
   and libisal-dev are installed. Prints "METRIC<tab>GB/s" lines; checks the bytes of every operation first. */
#define _GNU_SOURCE
#include <isa-l.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define BLOCKS_MAX 16
#define COLD_BYTES (256u << 20)

extern int xor_gen_avx(int, int, void **);
extern int pq_gen_avx2(int, int, void **);
extern void ec_encode_data_avx2(int, int, int, unsigned char *, unsigned char **, unsigned char **);

typedef void encode(int, int, int, unsigned char *, unsigned char **, unsigned char **);
typedef int generate(int, int, void **);

static long rest_ms;
static volatile uint64_t sink;

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return t.tv_sec + t.tv_nsec * 1e-9;
}

static uint8_t gf_times(uint8_t a, uint8_t b) {
    uint8_t sum = 0;
    for (; b; b >>= 1, a = (uint8_t)(a << 1 ^ (a & 128 ? 0x1d : 0)))
        if (b & 1) sum ^= a;
    return sum;
}

static uint8_t gf_power(uint8_t base, int exponent) {
    uint8_t product = 1;
    while (exponent--) product = gf_times(product, base);
    return product;
}

static uint8_t gf_inverse(uint8_t a) { return gf_power(a, 254); }

/* Stripes of `k` data blocks and three parities, at page offsets; those of 256 KiB 1,792 bytes
   further than they are long, as in SnapRAID's test. */
struct stripes { unsigned char *bytes; int k; size_t block, next, count; };

static unsigned char *block_at(struct stripes *s, size_t stripe, int index) {
    return s->bytes + (stripe * (s->k + 3) + index) * s->next;
}

static struct stripes make(int k, size_t block, int is_cold) {
    size_t next = block + (block == 262144 ? 1792 : 0);
    struct stripes s = {0, k, block, next, is_cold ? COLD_BYTES / (k * block) : 1};
    size_t length = s.count * (k + 3) * next;
    if (posix_memalign((void **)&s.bytes, 4096, length)) exit(1);
    for (size_t i = 0; i < length; i++) s.bytes[i] = (unsigned char)(i * 0x9e37 >> 5);
    return s;
}

/* What is done with a stripe: sources, targets and tables of matrix code; or a generator over all blocks. */
struct work {
    generate *generate; int vectors;
    encode *encode; int sources, targets; int source[BLOCKS_MAX + 3], target[3];
    unsigned char tables[32 * 3 * (BLOCKS_MAX + 3)];
    int reads_only;
};

static void step(struct stripes *s, struct work *w, size_t stripe) {
    unsigned char *from[BLOCKS_MAX + 3], *to[3];
    if (w->reads_only) {
        uint64_t sum = 0;
        for (int b = 0; b < s->k; b++) {
            const uint64_t *words = (const uint64_t *)block_at(s, stripe, b);
            for (size_t i = 0; i < s->block / 8; i++) sum ^= words[i];
        }
        sink += sum;
        return;
    }
    int count = w->generate ? w->vectors : w->sources;
    for (int i = 0; i < count; i++) from[i] = block_at(s, stripe, w->source[i]);
    if (w->generate) {
        if (w->generate(count, (int)s->block, (void **)from)) exit(2);
        return;
    }
    for (int i = 0; i < w->targets; i++) to[i] = block_at(s, stripe, w->target[i]);
    w->encode((int)s->block, w->sources, w->targets, w->tables, from, to);
}

static void measure(const char *what, struct stripes *s, struct work *w, const char *end) {
    size_t batch = s->count > 1 ? s->count : 64, done = 0;
    double start = now(), spent;
    do {
        for (size_t i = 0; i < batch; i++) step(s, w, i % s->count);
        done += batch;
        spent = now() - start;
    } while (spent * 1000 < rest_ms);
    const char *size = s->block == 4096 ? "4K" : s->block == 65536 ? "64K" : "256K";
    printf("%s of %d, %s %s%s\t%.4f\n", what, s->k, size, s->count > 1 ? "cold" : "warm", end,
           (double)done * s->k * s->block / spent / 1e9);
}

static void check_sum(struct stripes *s, int target, uint8_t base, const char *what) {
    for (size_t at = 0; at < s->block; at += 61) {
        uint8_t sum = 0;
        for (int i = 0; i < s->k; i++) sum ^= gf_times(gf_power(base, i), block_at(s, 0, i)[at]);
        if (sum != block_at(s, 0, target)[at]) { fprintf(stderr, "wrong bytes: %s\n", what); exit(3); }
    }
}

static struct work generator(generate *g, int k, int parities, int skips) {
    struct work w = {.generate = g};
    for (int i = 0; i < k + parities; i++) if (i != skips) w.source[w.vectors++] = i;
    if (skips >= 0) { w.source[w.vectors++] = k + 2; } /* the restored block goes to a spare place */
    return w;
}

/* P, Q and R by matrix code. */
static struct work triple(encode *e, int k) {
    struct work w = {.encode = e, .sources = k, .targets = 3};
    unsigned char matrix[3 * BLOCKS_MAX];
    for (int i = 0; i < k; i++) {
        w.source[i] = i;
        for (int p = 0; p < 3; p++) matrix[p * k + i] = gf_power((uint8_t)(1 << p), i);
    }
    for (int p = 0; p < 3; p++) w.target[p] = k + p;
    ec_init_tables(k, 3, matrix, w.tables);
    return w;
}

/* Blocks x and y by P and Q, or x and P by Q, in one pass. Targets: the places of R and of block x. */
static struct work two(encode *e, int k, int x, int y) {
    struct work w = {.encode = e, .targets = 2};
    unsigned char matrix[2 * (BLOCKS_MAX + 3)];
    uint8_t c[2][BLOCKS_MAX + 3];
    uint8_t gx = gf_power(2, x), gy = y < 0 ? 0 : gf_power(2, y);
    uint8_t inverse = gf_inverse(y < 0 ? gx : (uint8_t)(gx ^ gy));
    for (int i = 0; i < k + 2; i++) {
        if (i == x || i == y || (y < 0 && i == k)) continue;
        /* Dx = (gy P' + Q') / (gx + gy); Dy = P' + Dx; with y lost to P: Dx = Q' / gx, P = sum + Dx */
        uint8_t p = i < k || i == k, q = i < k ? gf_power(2, i) : i == k + 1;
        if (i == k) q = 0;
        if (i == k + 1) p = 0;
        uint8_t dx = gf_times(inverse, (uint8_t)(gf_times(gy, p) ^ q));
        c[0][w.sources] = dx;
        c[1][w.sources] = (uint8_t)((y < 0 && i == k + 1 ? 0 : p) ^ dx);
        w.source[w.sources++] = i;
    }
    for (int t = 0; t < 2; t++)
        for (int i = 0; i < w.sources; i++) matrix[t * w.sources + i] = c[t][i];
    w.target[0] = k + 2;
    w.target[1] = x;
    ec_init_tables(w.sources, 2, matrix, w.tables);
    return w;
}

static void check_two(struct stripes *s, struct work *w, int x, int y) {
    unsigned char *kept = malloc(2 * s->block);
    memcpy(kept, block_at(s, 0, x), s->block);
    memcpy(kept + s->block, block_at(s, 0, y < 0 ? s->k : y), s->block);
    step(s, w, 0);
    if (memcmp(block_at(s, 0, s->k + 2), kept, s->block) || memcmp(block_at(s, 0, x), kept + s->block, s->block)) {
        fprintf(stderr, "wrong bytes: recover %d %d\n", x, y);
        exit(3);
    }
    memcpy(block_at(s, 0, x), kept, s->block);
    free(kept);
}

static void shape(int k, size_t block, int is_cold, const char *end) {
    struct stripes s = make(k, block, is_cold);
    int is_avx2 = *end != 0;
    generate *xor = is_avx2 ? xor_gen_avx : xor_gen, *pq = is_avx2 ? pq_gen_avx2 : pq_gen;
    encode *matrix = is_avx2 ? ec_encode_data_avx2 : ec_encode_data;
    struct work w = generator(xor, k, 1, -1);
    step(&s, &w, 0), check_sum(&s, k, 1, "XOR"), measure("XOR", &s, &w, end);
    w = generator(pq, k, 2, -1);
    step(&s, &w, 0), check_sum(&s, k, 1, "P"), check_sum(&s, k + 1, 2, "Q"), measure("P+Q", &s, &w, end);
    w = triple(matrix, k);
    step(&s, &w, 0), check_sum(&s, k + 2, 4, "R"), measure("P+Q+R", &s, &w, end);
    w = generator(xor, k, 1, 3);
    step(&s, &w, 0);
    if (memcmp(block_at(&s, 0, k + 2), block_at(&s, 0, 3), block)) exit(3);
    measure("recover 1", &s, &w, end);
    w = two(matrix, k, 2, 3);
    check_two(&s, &w, 2, 3), measure("recover 2", &s, &w, end);
    step(&s, &w, 0);
    free(s.bytes);
    s = make(k, block, is_cold);
    w = generator(pq, k, 2, -1);
    step(&s, &w, 0);
    w = two(matrix, k, 2, -1);
    check_two(&s, &w, 2, -1), measure("recover data and P", &s, &w, end);
    if (!is_avx2) {
        w.reads_only = 1;
        measure("read only", &s, &w, end);
    }
    free(s.bytes);
}

int main(int count, char **words) {
    rest_ms = count > 1 ? atol(words[1]) : 100;
    shape(4, 4096, 0, "");
    shape(16, 4096, 0, "");
    shape(8, 4096, 0, "");
    shape(8, 65536, 0, "");
    shape(8, 262144, 0, "");
    shape(8, 65536, 1, "");
    shape(8, 4096, 0, ", AVX2");
    shape(8, 262144, 0, ", AVX2");
    return 0;
}
