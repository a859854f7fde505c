// The words that stand for enumerators in run files, in the enumerators' order.
#pragma once

#include <array>
#include <cstddef>

#include "config/run_file.hpp"

namespace lockstep::config {

inline constexpr std::array<const char*, 2> architecture_names = {"llama", "gpt"};
inline constexpr std::array<const char*, 4> schedule_names = {"gpipe", "1f1b", "interleaved", "zb-h1"};
inline constexpr std::array<const char*, 3> dtype_names = {"bf16", "fp32", "fp64"};

inline constexpr std::array<const char*, 2> attention_kernel_names = {"flash", "scores"};
inline constexpr std::array<const char*, 3> cross_entropy_names = {"fused", "compiled", "unfused"};
inline constexpr std::array<const char*, 2> gradient_dtype_names = {"fp32", "compute"};

inline constexpr std::array<const char*, 2> layer_split_names = {"even", "cost"};
inline constexpr std::array<const char*, 2> gradient_scatter_names = {"chunk", "micro_batch"};
inline constexpr std::array<const char*, 2> gathered_input_names = {"gather_again", "keep"};
inline constexpr std::array<const char*, 2> optimizer_names = {"adamw", "sgd"};
inline constexpr std::array<const char*, 4> learning_rate_schedule_names = {"cosine", "linear", "wsd",
                                                                            "constant"};
inline constexpr std::array<const char*, 2> nonfinite_names = {"stop", "skip"};

inline constexpr std::array<const char*, 2> topology_names = {"racks", "rails"};
inline constexpr std::array<const char*, 6> collective_algorithm_names = {
    "auto", "ring", "tree", "halving_doubling", "hierarchical", "direct"};

inline const auto& names_of(Architecture) { return architecture_names; }
inline const auto& names_of(ScheduleKind) { return schedule_names; }
inline const auto& names_of(Dtype) { return dtype_names; }
inline const auto& names_of(AttentionKernel) { return attention_kernel_names; }
inline const auto& names_of(CrossEntropy) { return cross_entropy_names; }
inline const auto& names_of(GradientDtype) { return gradient_dtype_names; }
inline const auto& names_of(LayerSplit) { return layer_split_names; }
inline const auto& names_of(GradientScatter) { return gradient_scatter_names; }
inline const auto& names_of(GatheredInput) { return gathered_input_names; }
inline const auto& names_of(Optimizer) { return optimizer_names; }
inline const auto& names_of(LearningRateSchedule) { return learning_rate_schedule_names; }
inline const auto& names_of(NonFinite) { return nonfinite_names; }
inline const auto& names_of(Topology) { return topology_names; }
inline const auto& names_of(CollectiveAlgorithm) { return collective_algorithm_names; }

}  // namespace lockstep::config
