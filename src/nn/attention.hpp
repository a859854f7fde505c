// The attention ops of a layer, with the keys and values of the whole sequence: at cp 1 they lie in qkv, else
// they are gathered over context parallel and their gradients scattered. Internal to this room.
#pragma once

#include <ATen/ATen.h>

#include "nn/context.hpp"

namespace lockstep::nn {

// Rotary embedding in place on the q and k columns of qkv [T, (h + 2 kv) D], backwards where direction is -1.
void rope(const Context& ctx, std::string_view name, at::Tensor& qkv, const TokenPlaces& places,
          int direction);

// The k and v columns of all ranks' qkv, in rank order: [cp T, 2 kv D]. Undefined where cp is 1.
at::Tensor gather_keys(const Context& ctx, const at::Tensor& qkv);

// [T, h D]; `keys` from gather_keys. Sets log_sum_exp [T, h].
at::Tensor attention(const Context& ctx, const at::Tensor& qkv, const at::Tensor& keys,
                     const TokenPlaces& places, at::Tensor& log_sum_exp);

struct AttentionKept {
  at::Tensor qkv, keys, out, log_sum_exp;
};
// Gradient of qkv (rotated) given that of out. Frees what it is given once it is used.
at::Tensor attention_backward(const Context& ctx, AttentionKept kept, at::Tensor out_gradient,
                              const TokenPlaces& places);

}  // namespace lockstep::nn
