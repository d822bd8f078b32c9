/* program.h -- several elementwise operators in one call.
 *
 * An elementwise operator is a pass over memory with little arithmetic. A tree
 * of them, whose inner values have one reader each, runs as one pass: a kernel
 * loads a few elements of every operand, runs all operators on them, and stores
 * the result. The inner values are in registers and never in memory.
 *
 * The code is a list of instructions, one operator each, in the order of the
 * graph. The backward code computes the inner values again, as far as
 * derivatives need them, and then the gradients in the order of separate calls.
 * So in f32 all bits of values and gradients are those of separate calls. In 16
 * bits operands, result and gradients are rounded, but no inner value is. */
#ifndef SEG_ENGINE_GRAPH_PROGRAM_H
#define SEG_ENGINE_GRAPH_PROGRAM_H
#include "engine/graph/op.h"

enum {
    PROGRAM_STEPS = 32,               // operators, constants included
    PROGRAM_TEMPS = 12,               // registers for inner values
    PROGRAM_CODE = 3 * PROGRAM_STEPS, // instructions: value, two gradients
};

/* Registers of an instruction. Each holds one element, or as many as a kernel
 * treats at once. */
enum {
    REG_NONE = -1,
    REG_X = 0,      // + k: operand k of the call
    REG_Y = MAX_IN, // the result
    REG_DY,         // the gradient of the result
    REG_DX,         // + k: the gradient of operand k
    REG_TEMP = REG_DX + MAX_IN,
    REG_COUNT = REG_TEMP + PROGRAM_TEMPS
};

/* An operator of a program. x: its operands; below MAX_IN an operand of the
 * call, MAX_IN + i the result of step i < own number, -1 none. The attributes
 * must outlive the program. */
typedef struct ProgramStep {
    const Attr *attr;
    int8_t x[2];
} ProgramStep;

typedef enum ProgramAction {
    PROGRAM_VALUE, /* to = f(a, b)                                */
    PROGRAM_GRAD0, /* to = dy times the derivative of operand 0   */
    PROGRAM_GRAD1, /* .. of operand 1                             */
} ProgramAction;

/* One instruction. p, q: attributes 0 and 1 of the operator. A gradient of a
 * unary operator reads as `a` the tensor that its row keeps: its result or its
 * operand; one of a binary operator reads both operands. add: to += instead.
 * The first gradient of operand k in REG_DX + k has no `add`: it is stored or
 * added as Call.fresh says. */
typedef struct Instruction {
    int16_t op;
    int8_t action; /* ProgramAction */
    bool add;
    int8_t a, b, dy, to; /* REG_* */
    float p, q;
} Instruction;

/* Instructions in the order of running. The first `constants` have no operands
 * and are in registers of their own: a kernel may run them once. */
typedef struct ProgramCode {
    int count, constants, temps;
    Instruction list[PROGRAM_CODE];
} ProgramCode;

/* steps and operands are given by the caller of program_compile, with `wants`:
 * bit k is set if the gradient of operand k is wanted. The rest is its result;
 * a bit of wants whose gradient is always zero is cleared. */
typedef struct Program {
    int steps, operands;
    ProgramStep step[PROGRAM_STEPS]; /* the last makes the result */
    unsigned wants;
    ProgramCode forward, backward;
    unsigned reads; /* bit k: the backward code reads operand k */
    bool reads_y;   /* it reads the result                      */
} Program;

/* Can `op` be a step of a program? All elementwise operators, and constant. */
bool program_takes(Op op);
/* Writes forward and backward code; false if more than PROGRAM_TEMPS registers
 * are needed. */
bool program_compile(Program *p);
/* The program of one operator: the row of call c, with its operands. */
void program_of_call(const Call *c, Program *p);
#endif
