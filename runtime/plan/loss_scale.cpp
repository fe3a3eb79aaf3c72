#include "runtime/plan/loss_scale.h"

#include "runtime/plan/scalars.h"

#include <algorithm>
#include <cmath>

namespace zerocc {

void moveLossScale(double *scalars, bool overflow) {
  if (scalars[kScalarScaleDynamic] == 0)
    return;
  double &scale = scalars[kScalarLossScale], &good = scalars[kScalarScaleGood], &spare = scalars[kScalarScaleSpare];
  if (overflow) {
    good = 0;
    if (spare > 1)
      spare -= 1;
    else
      scale = std::max(scale / 2, scalars[kScalarScaleLeast]);
    return;
  }
  good += 1;
  if (std::fmod(good, scalars[kScalarScaleWindow]) == 0) {
    spare = scalars[kScalarScaleHysteresis];
    scale *= 2;
  }
}

void writeLossScale(double scale, bool dynamic, double window, double hysteresis, double least, double *scalars) {
  scalars[kScalarLossScale] = scale;
  scalars[kScalarScaleDynamic] = dynamic ? 1 : 0;
  scalars[kScalarScaleWindow] = window;
  scalars[kScalarScaleHysteresis] = scalars[kScalarScaleSpare] = hysteresis;
  scalars[kScalarScaleLeast] = least;
  scalars[kScalarScaleGood] = 0;
}

} // namespace zerocc
