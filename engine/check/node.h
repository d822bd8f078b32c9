/* node.h -- is a node of a network right, at the network's own extents?
 *
 * The suites draw small shapes; a recipe's layers are what a user runs. One
 * node is taken as a case of its row, with batch 1 and random operands in the
 * range that the row is meant for, parameters as the network starts with them
 * (an LSTM whose weights are larger is chaotic: no two ways of rounding agree
 * about it), and its agreement with `ref` is checked,
 * forward and backward: whole for rows that are cheap, at random elements for
 * convolutions. */
#ifndef SEG_ENGINE_CHECK_NODE_H
#define SEG_ENGINE_CHECK_NODE_H
#include "engine/check/opcase.h"
#include "engine/graph/graph.h"

/* The operator node as a case; false with the reason. */
bool node_case(const Graph *g, int node, OpCase *out);
/* Check it; `full`: every element. Failures and margin go to k. */
void node_check(const Graph *g, int node, bool full, OpCheck *k);
#endif
