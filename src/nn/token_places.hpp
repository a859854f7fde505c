// Where this rank's tokens stand in their sequences and documents. Context parallel cuts every sequence into
// 2 x cp chunks; rank i holds chunks i and 2 cp - 1 - i, in that order, so that under a causal mask all ranks
// have the same work (Llama 3, arXiv:2407.21783, section 3.3.2).
#pragma once

#include <ATen/ATen.h>

#include "model/shape.hpp"

namespace lockstep::nn {

struct Context;

// Of each of the rank's T tokens; sequence after sequence, S / cp tokens of each. All [T] int64.
struct TokenPlaces {
  at::Tensor position;   // in its document, for the rotary embedding
  at::Tensor first_key;  // the token sees first_key .. own_key of its whole sequence, in 0 .. S - 1
  at::Tensor own_key;    // its own place there
};

// Places without a document mask, where a whole sequence is one document (Context::places).
TokenPlaces token_places(const model::ShardShape& shape, int64_t cp_rank);
// With one: document_starts [T] int64, the place in the whole sequence at which a token's document begins,
// which may lie before the rank's own chunk. Undefined: no mask. RunError where a start is negative or behind
// its token, or where starts of neighbouring tokens descend.
TokenPlaces token_places(const Context& ctx, const at::Tensor& document_starts);

}  // namespace lockstep::nn
