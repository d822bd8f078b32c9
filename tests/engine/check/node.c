/* node.c -- checks at a network's own extents: single elements equal those of
 * ref, a wrong kernel is detected, and every node of a network makes a case. */
#include "engine/check/node.h"
#include "engine/check/sample.h"
#include "engine/check/suite.h"
#include "tests/support/networks.h"
#include "tests/support/op_call.h"

/* Compares every element of a part with sample_at. */
static void same_samples(const OpCase *c, const OpValues *in, int operand,
                         const double *want, int64_t count)
{
    for (int64_t i = 0; want && i < count; i++) {
        Sample s = sample_at(c, in, operand, i);
        if (fabs(s.value - want[i]) <= 1e-12 * s.scale + 1e-300) continue;
        char text[OPCASE_TEXT];
        test_failed(__FILE__, __LINE__, "%s: part %d [%lld]: %.17g, ref %.17g",
                    opcase_text(c, text), operand, (long long)i, s.value,
                    want[i]);
        return;
    }
}

TEST(sample_equals_ref)
{
    static const Op rows[] = {OP_conv, OP_upconv, OP_linear};
    for (int k = 0; k < 3; k++) {
        OpCase c;
        Arena mem = {0};
        OpDevice d;
        OpValues in, out;
        REQUIRE(suite_example(rows[k], &c));
        for (int i = 0; i < 3; i++)
            if (c.x[i].n) c.wrt |= 1u << i;
        REQUIRE(opcase_values(&c, &mem, &in));
        REQUIRE(opdevice_open(&backend_ref, 2, &d));
        bool ok = oprun(&c, &d, &in, (OpOptions){0}, &mem, &out);
        opdevice_close(&d);
        REQUIRE(ok);
        same_samples(&c, &in, -1, out.y, out.results);
        for (int i = 0; i < 3; i++)
            same_samples(&c, &in, i, out.dx[i], out.count[i]);
        arena_release(&mem);
    }
}

/* A convolution with padding in h off by one. */
static bool shifted(const Call *c)
{
    Attr a = *c->attr;
    Call call = *c;
    a.conv.ph0++;
    call.attr = &a;
    return backend_cpu.fwd[OP_conv](&call);
}

static bool lost_bias(const Call *c)
{
    Call call = *c;
    call.x[2] = NULL;
    return backend_cpu.fwd[OP_conv](&call);
}

static bool no_gradient(const Call *c)
{
    Call call = *c;
    call.dx[1] = NULL;
    memset(c->dx[1]->data, 0, tensor_bytes(c->dx[1]));
    return backend_cpu.bwd[OP_conv](&call);
}

TEST(node_check_notices)
{
    Net n;
    OpCheck k = {.be = given_backend(1), .report = given_report};
    net_new(&n);
    n.bias = true;
    int x = net_input(&n, "x", (Dims){1, 1, 40, 33, 8}, 2);
    int y = net_conv(&n, x, 16, 3);
    node_check(&n.g, y, false, &k);
    node_check(&n.g, y, true, &k);
    EXPECT(k.worst > 0 && k.worst < 1);
    KernelFn *wrong[] = {shifted, lost_bias, no_gradient};

    for (int i = 0; i < 3; i++) {
        Backend be = backend_cpu;
        *(i < 2 ? &be.fwd[OP_conv] : &be.bwd[OP_conv]) = wrong[i];
        OpCheck broken = {.be = &be};
        node_check(&n.g, y, false, &broken);
        EXPECT(broken.failures > 0);
    }
    net_free(&n);
}

TEST(node_of_a_whole_network)
{
    Net n;
    OpCheck k = {.be = given_backend(1), .report = given_report};
    net_small(&n);
    int cases = 0;
    for (int i = 0; i < n.g.count; i++) {
        if (n.g.node[i].kind != NODE_OP) continue;
        node_check(&n.g, i, false, &k);
        cases++;
    }
    EXPECT(cases > 20);
    net_free(&n);
}

/* For vectors a batch of one has no deviation, so the case has several
 * samples. */
TEST(node_check_of_a_batch_norm_of_vectors)
{
    Net n;
    OpCheck k = {.be = given_backend(1), .report = given_report};
    net_new(&n);
    const int y = net_norm(&n, net_input(&n, "x", (Dims){1, 1, 1, 1, 6}, 0));
    node_check(&n.g, y, false, &k);
    EXPECT_INT(k.failures, 0);
    EXPECT(k.worst > 0 && k.worst < 1);
    net_free(&n);
}

/* Indices are drawn within the fibres and the table of the network. */
TEST(node_check_of_indices)
{
    Net n;
    OpCheck k = {.be = given_backend(1), .report = given_report};
    net_new(&n);
    const int x = net_input(&n, "x", (Dims){1, 1, 5, 7, 3}, 2);
    const int table = net_param(&n, "table", (Dims){4, 1, 1, 1, 6}, 0,
                                (Init){INIT_NORMAL, 1}, true);
    Attr sort = op_default(OP_argsort), gather = op_default(OP_gather);
    Attr most = op_default(OP_argmax), one_hot = op_default(OP_one_hot);
    sort.argsort.w = gather.gather.w = gather.gather.h = most.argmax.c = 1;
    one_hot.one_hot.classes = 3;
    const int order = net_row(&n, sort, (int[]){x}, 1);
    const int class = net_row(&n, most, (int[]){x}, 1);
    const int last[4] = {
        net_row(&n, gather, (int[]){x, order}, 2),
        net_row(&n, one_hot, (int[]){class}, 1),
        net_row(&n, op_default(OP_embedding), (int[]){table, class}, 2),
        net_row(&n, op_default(OP_normal), (int[]){x}, 1)};
    node_check(&n.g, order, false, &k);
    node_check(&n.g, class, false, &k);
    for (int i = 0; i < 4; i++) node_check(&n.g, last[i], false, &k);
    EXPECT_INT(k.failures, 0);
    net_free(&n);
}
