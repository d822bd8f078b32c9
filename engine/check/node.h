/* node.h -- checks a node of a network at the network's own extents.
 *
 * The suites draw small shapes; a user runs the layers of a recipe. One node
 * becomes a case of its operator, with batch size 1 and random operands in the
 * range that the operator is meant for. Parameters are drawn as the network
 * initialises them (an LSTM with larger weights is chaotic: no two ways of
 * rounding agree). Its agreement with `ref` is checked, forward and backward:
 * all elements for cheap operators, random elements for convolutions. */
#ifndef SEG_ENGINE_CHECK_NODE_H
#define SEG_ENGINE_CHECK_NODE_H
#include "engine/check/opcase.h"
#include "engine/graph/graph.h"

/* Makes a case of the operator node; false with a reason. */
bool node_case(const Graph *g, int node, OpCase *out);
/* Checks it; `full`: every element. Failures and margin go to k. */
void node_check(const Graph *g, int node, bool full, OpCheck *k);
#endif
