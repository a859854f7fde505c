// One operation of the step program: what the trainer runs and records, what the simulator prices.
#pragma once

#include <cstdint>
#include <string_view>

#include "observe/span.hpp"

namespace lockstep::model {

using observe::Stream;

enum class OpKind : uint8_t {
  gemm,            // matrix product
  attention,       // fused causal attention, forward or backward
  memory,          // bound by memory traffic: norms, rope, activation functions, loss, optimizer
  all_reduce,      //
  all_gather,      // collectives over the ranks of `axis`
  reduce_scatter,  //
  send,            // messages between neighbours of the pipeline
  receive,         //
  host,            // work of the CPU beside the device: reading a batch
};

// Groups of ranks: the mesh's axes, and groups made of them.
enum class Axis : uint8_t {
  none,
  tp,
  tp_kv,    // neighbours on tp that hold copies of the same key and value heads
  cp,       //
  pp,       //
  pp_ends,  // first and last stage: both hold the matrix of tied embeddings
  dp,       //
  dp_cp,    // all ranks that hold the same parameters: gradients are summed, and state sharded, over them
};

// What sets kernels of one kind apart in speed where their FLOPs or bytes are alike.
enum class Work : uint8_t {
  usual,            // memory: moves or adds elements
  rows,             // memory: sums along rows or turns pairs in them: norms, rotary positions
  exponentials,     // memory: an exponential for each element: activation function, loss
  weight_gradient,  // gemm: the result is added to what is accumulated
};

constexpr bool is_collective(OpKind kind) {
  return kind == OpKind::all_reduce || kind == OpKind::all_gather || kind == OpKind::reduce_scatter;
}

struct Op {
  std::string_view name;  // static storage
  OpKind kind = OpKind::memory;
  Axis axis = Axis::none;           // of a collective or message
  Stream stream = Stream::compute;  // where it is queued
  // Compute: bytes of every operand and result (an accumulated result counts twice). Communication: the
  // message, for a collective the whole tensor: gathered output, unreduced input (nccl-tests' "size").
  int64_t bytes = 0;
  double flops = 0;             // causal attention counts half of the full square
  int64_t m = 0, n = 0, k = 0;  // of a matrix product [m, k] x [k, n]
  Work work = Work::usual;      // of a kernel
  int64_t batch = 1;            // independent products of these sizes
  int launches = 1;             // that the host queues for it
  // A collective that feeds a layer's product, or follows one: software may do both piece by piece, at once.
  bool beside_product = false;

  bool operator==(const Op&) const = default;
};

const char* to_string(OpKind kind);
const char* to_string(Axis axis);

}  // namespace lockstep::model
