#include "model/op.hpp"

namespace lockstep::model {

const char* to_string(OpKind kind) {
  switch (kind) {
    case OpKind::gemm:
      return "gemm";
    case OpKind::attention:
      return "attention";
    case OpKind::memory:
      return "memory";
    case OpKind::all_reduce:
      return "all_reduce";
    case OpKind::all_gather:
      return "all_gather";
    case OpKind::reduce_scatter:
      return "reduce_scatter";
    case OpKind::send:
      return "send";
    case OpKind::receive:
      return "receive";
    case OpKind::host:
      return "host";
  }
  return "?";
}

const char* to_string(Axis axis) {
  switch (axis) {
    case Axis::none:
      return "none";
    case Axis::tp:
      return "tp";
    case Axis::tp_kv:
      return "tp_kv";
    case Axis::cp:
      return "cp";
    case Axis::pp:
      return "pp";
    case Axis::pp_ends:
      return "pp_ends";
    case Axis::dp:
      return "dp";
    case Axis::dp_cp:
      return "dp_cp";
  }
  return "?";
}

}  // namespace lockstep::model
