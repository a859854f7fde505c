#include "train/adamw.hpp"

#include <cmath>

namespace lockstep::train {

template <typename T>
void adamw_step(const config::TrainConfig& train, const AdamStep& step, const std::vector<DecayRange>& ranges,
                std::span<const T> gradient, std::span<T> master, std::span<T> moment1,
                std::span<T> moment2) {
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

template void adamw_step<float>(const config::TrainConfig&, const AdamStep&, const std::vector<DecayRange>&,
                                std::span<const float>, std::span<float>, std::span<float>, std::span<float>);
template void adamw_step<double>(const config::TrainConfig&, const AdamStep&, const std::vector<DecayRange>&,
                                 std::span<const double>, std::span<double>, std::span<double>,
                                 std::span<double>);

}  // namespace lockstep::train
