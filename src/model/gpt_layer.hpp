// The ops of a gpt layer, as Megatron-LM runs them (Narayanan et al., arXiv:2104.04473, section 4): LayerNorm
// with bias, biases of all products (of a row-parallel one added with dropout and the residual, of the up
// product with GELU), learned positions.
#pragma once

#include "model/layer_program.hpp"
#include "model/op_builder.hpp"

namespace lockstep::model {

void gpt_forward_to_down(OpBuilder& b, const ShardShape& s);  // everything before the down product
void gpt_forward_from_down(OpBuilder& b, const ShardShape& s);
void gpt_backward_input(OpBuilder& b, const ShardShape& s, const Recompute& r);
void gpt_backward_weight(OpBuilder& b, const ShardShape& s, const Recompute& r);
// Positions and dropout, after the embedding; their backward before the embedding's.
void gpt_positions(OpBuilder& b, const ShardShape& s);
void gpt_positions_backward(OpBuilder& b, const ShardShape& s);

}  // namespace lockstep::model
