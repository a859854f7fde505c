#include "train/optimizer.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/error.hpp"
#include "config/optimizer_state.hpp"

namespace lockstep::train {
namespace {

template <typename T>
void adamw(const config::TrainConfig& train, const OptimizerStep& step, const std::vector<DecayRange>& ranges,
           std::span<const T> gradient, std::span<T> master, std::span<T> moment1, std::span<T> moment2) {
  const auto t = static_cast<double>(step.step);
  const T beta1 = static_cast<T>(train.beta1), beta2 = static_cast<T>(train.beta2);
  const T rest1 = static_cast<T>(1 - train.beta1), rest2 = static_cast<T>(1 - train.beta2);
  const T correction1 = static_cast<T>(1 / (1 - std::pow(train.beta1, t)));
  const T correction2 = static_cast<T>(1 / (1 - std::pow(train.beta2, t)));
  const T lr = static_cast<T>(step.lr), eps = static_cast<T>(train.eps);
  const T scale = static_cast<T>(step.gradient_scale);
  for (const DecayRange& range : ranges) {
    const T keep = static_cast<T>(range.decay ? 1 - step.lr * train.weight_decay : 1.0);
    for (auto i = static_cast<size_t>(range.begin); i < static_cast<size_t>(range.end); ++i) {
      const T g = gradient[i] * scale;
      const T m = beta1 * moment1[i] + rest1 * g;
      const T v = beta2 * moment2[i] + rest2 * g * g;
      moment1[i] = m;
      moment2[i] = v;
      master[i] = master[i] * keep - lr * (m * correction1) / (std::sqrt(v * correction2) + eps);
    }
  }
}

template <typename T>
void sgd(const config::TrainConfig& train, const OptimizerStep& step, const std::vector<DecayRange>& ranges,
         std::span<const T> gradient, std::span<T> master) {
  const T lr = static_cast<T>(step.lr), scale = static_cast<T>(step.gradient_scale);
  for (const DecayRange& range : ranges) {
    const T decay = static_cast<T>(range.decay ? train.weight_decay : 0.0);
    for (auto i = static_cast<size_t>(range.begin); i < static_cast<size_t>(range.end); ++i)
      master[i] -= lr * (gradient[i] * scale + decay * master[i]);
  }
}

template <typename T>
void sgd(const config::TrainConfig& train, const OptimizerStep& step, const std::vector<DecayRange>& ranges,
         std::span<const T> gradient, std::span<T> master, std::span<T> velocity) {
  const T lr = static_cast<T>(step.lr), scale = static_cast<T>(step.gradient_scale);
  const T momentum = static_cast<T>(train.momentum);
  for (const DecayRange& range : ranges) {
    const T decay = static_cast<T>(range.decay ? train.weight_decay : 0.0);
    for (auto i = static_cast<size_t>(range.begin); i < static_cast<size_t>(range.end); ++i) {
      const T v = momentum * velocity[i] + (gradient[i] * scale + decay * master[i]);
      velocity[i] = v;
      master[i] -= lr * v;
    }
  }
}

// What the trainer got wrong, not the user.
template <typename T>
void check(const config::TrainConfig& train, const std::vector<DecayRange>& ranges, size_t length,
           size_t masters, const std::vector<std::span<T>>& moments) {
  const auto wanted = static_cast<size_t>(config::optimizer_moments(train));
  const bool fit =
      masters == length && moments.size() == wanted &&
      std::all_of(moments.begin(), moments.end(),
                  [&](const std::span<T>& moment) { return moment.size() == length; }) &&
      std::all_of(ranges.begin(), ranges.end(), [&](const DecayRange& range) {
        return range.begin >= 0 && range.begin <= range.end && static_cast<size_t>(range.end) <= length;
      });
  if (fit) return;
  throw RunError(
      fmt::format("optimizer: {} gradients, {} master weights and {} moments do not fit each other, their "
                  "ranges, or the {} moments of {}",
                  length, masters, moments.size(), wanted, config::to_string(train.optimizer)));
}

}  // namespace

bool decays(const config::TrainConfig& train, model::Family family) {
  const auto spared = [&](const char* name) {
    return std::find(train.no_decay.begin(), train.no_decay.end(), name) != train.no_decay.end();
  };
  switch (family) {
    case model::Family::norm:
      return !spared("norm");
    case model::Family::embedding:
      return !spared("embedding");
    case model::Family::output:
      return !spared("output");
    case model::Family::matrix:
      break;
  }
  return true;
}

template <typename T>
void optimizer_step(const config::TrainConfig& train, const OptimizerStep& step,
                    const std::vector<DecayRange>& ranges, std::span<const T> gradient, std::span<T> master,
                    const std::vector<std::span<T>>& moments) {
  check(train, ranges, gradient.size(), master.size(), moments);
  if (train.optimizer == config::Optimizer::adamw) {
    adamw<T>(train, step, ranges, gradient, master, moments[0], moments[1]);
  } else if (moments.empty()) {
    sgd<T>(train, step, ranges, gradient, master);
  } else {
    sgd<T>(train, step, ranges, gradient, master, moments[0]);
  }
}

template void optimizer_step<float>(const config::TrainConfig&, const OptimizerStep&,
                                    const std::vector<DecayRange>&, std::span<const float>, std::span<float>,
                                    const std::vector<std::span<float>>&);
template void optimizer_step<double>(const config::TrainConfig&, const OptimizerStep&,
                                     const std::vector<DecayRange>&, std::span<const double>,
                                     std::span<double>, const std::vector<std::span<double>>&);

}  // namespace lockstep::train
