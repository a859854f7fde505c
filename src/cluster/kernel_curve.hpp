// The share of a peak that a kernel reaches, by its size: small kernels reach less.
#pragma once

#include "config/run_file.hpp"

namespace lockstep::cluster {

class KernelCurve {
 public:
  // `peak`: FLOP/s or bytes/s. `curve` has passed config's rules: ascending sizes, shares in (0, 1]. Empty:
  // the `constant` share for every size.
  KernelCurve(double peak, double constant, const config::Curve& curve);

  // At `size` FLOPs or bytes: straight over the logarithm of the size between points, flat beyond the ends.
  double share(double size) const;

  // Seconds of a kernel of `size` FLOPs or bytes: size / (peak x share), but not less than any smaller kernel
  // takes. Where a curve climbs faster than in proportion to the size, as a noisy measurement may, that
  // quotient would fall while the kernel grows; whoever has the smaller kernel could then run the larger one.
  double seconds(double size) const;

 private:
  double peak_;
  config::Curve points_;  // at least one
};

}  // namespace lockstep::cluster
