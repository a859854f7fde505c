// The ops of attention itself, between its two products with weights: in one kernel, or with the scores in
// memory. The same for every architecture.
#pragma once

#include "model/op_builder.hpp"

namespace lockstep::model {

// Context parallel: attention needs the keys and values of the whole sequence.
void gather_keys(OpBuilder& b, const ShardShape& s);
// The gradients of all keys and values are summed over the ranks in fp32; each gets its own tokens'.
void scatter_key_gradients(OpBuilder& b, const ShardShape& s);

void attention_forward(OpBuilder& b, const ShardShape& s);
void attention_backward(OpBuilder& b, const ShardShape& s);

// Bytes that attention keeps for its backward beside q, k, v and its output: statistics of the softmax; or
// with scores in memory the softmax's output, and with dropout its mask, a byte each, and its output
// (Korthikanti et al., arXiv:2205.05198, section 4.1: 2 + 1 + 2 bytes a score in half precision).
int64_t attention_kept_bytes(const ShardShape& s);

}  // namespace lockstep::model
