#pragma once

#include <utility>

namespace zerocc {

/// The scalar block: one f64 array per rank in device memory, equal on all ranks. Base values are written by
/// the host before the first step (and on --set / resume); the others by `step_scalars` once per step. No
/// kernel of a step reads a run-time value from anywhere else.
enum Scalar : int {
  // set by the host
  kScalarStep = 0, // steps done
  kScalarBaseLr,
  kScalarBeta1, // who reads which: optimizers.h
  kScalarBeta2,
  kScalarEps,
  kScalarMomentum, // sgd
  kScalarNesterov, // sgd, 0/1
  kScalarClip,     // 0: off
  kScalarSchedule, // enum Schedule
  kScalarWarmupSteps,
  kScalarTotalSteps,
  kScalarMinLr,
  kScalarStaticCount, // labels per micro-batch the backward was seeded with
  kScalarUpdates,     // updates done (steps minus skipped ones): Adam's t
  kScalarFirstCount,  // T of the first update, as ONNX counts: sgd (dampening), onnx_adam, adagrad
  kScalarOwn,         // sgd: dampening; onnx_adam: decay after the update; adagrad: decay of the rate
  // set by step_scalars
  kScalarLr = 16,     // of this step
  kScalarLoss,        // global mean of this step
  kScalarCount,       // global count of valid labels
  kScalarGradNorm,    // after unscaling, before clipping
  kScalarFactor,      // multiplies each summed gradient: static/global count, clip
  kScalarSkip,        // 1: this step's gradients are not finite, nothing is updated
  kScalarSkipped,     // steps skipped so far
  kScalarCorrection1, // 1 - beta1^t
  kScalarCorrection2, // 1 - beta2^t
  kScalarSkippedInRow, // steps skipped since the last update
  kScalarBadStep,      // where the row began: steps done before it,
  kScalarBadBucket,    // the first bucket (among those that train, from 0) with a gradient that is not finite; -1: only the
                       // loss is not,
  kScalarBadElement,   // and its first such element
  kScalarBadScale,     // the loss scale of that step
  // loss scaling (loss_scale.h); the first is moved by step_scalars, the others but kScalarScaleGood and
  // kScalarScaleSpare are set by the host
  kScalarLossScale = 32,   // the backward is seeded with it; 1 without scaling
  kScalarScaleDynamic,     // 0/1
  kScalarScaleWindow,      // steps without an overflow after which it doubles
  kScalarScaleHysteresis,  // overflows before it halves
  kScalarScaleLeast,
  kScalarScaleGood,        // steps since the last overflow
  kScalarScaleSpare,       // overflows left before it halves
  // what the schedule needs beside warm-up, total and least rate (lr_schedule.cpp); set by the host
  kScalarSchedule0 = 48,
  kScalarSchedule7 = 55,
  // per parameter group g: kScalarGroups + 2 g = weight decay, + 1 = learning-rate factor; set by the host
  kScalarGroups = 64,
  kScalars = 128
};

/// Kinds of learning-rate schedule: ours count warm-up from the first step, DeepSpeed's from the step before
/// it.
enum class Schedule : int {
  constant,
  linear,
  cosine,
  warmupLr,
  warmupDecayLr,
  warmupCosineLr,
  oneCycle,
  lrRangeTest
};

/// What checkpoints call them, so that they are found again when they move. Those without a name go by their number.
inline constexpr std::pair<int, const char *> kScalarNames[] = {
    {kScalarStep, "step"},
    {kScalarBaseLr, "lr"},
    {kScalarBeta1, "beta1"},
    {kScalarBeta2, "beta2"},
    {kScalarEps, "eps"},
    {kScalarMomentum, "momentum"},
    {kScalarNesterov, "nesterov"},
    {kScalarClip, "clip-grad-norm"},
    {kScalarSchedule, "schedule"},
    {kScalarWarmupSteps, "warmup-steps"},
    {kScalarTotalSteps, "total-steps"},
    {kScalarMinLr, "min-lr"},
    {kScalarStaticCount, "static-count"},
    {kScalarUpdates, "updates"},
    {kScalarFirstCount, "first-count"},
    {kScalarOwn, "own"},
    {kScalarLr, "step-lr"},
    {kScalarLoss, "loss"},
    {kScalarCount, "count"},
    {kScalarGradNorm, "grad-norm"},
    {kScalarFactor, "factor"},
    {kScalarSkip, "skip"},
    {kScalarSkipped, "skipped"},
    {kScalarCorrection1, "correction1"},
    {kScalarCorrection2, "correction2"},
    {kScalarSkippedInRow, "skipped-in-row"},
    {kScalarBadStep, "bad-step"},
    {kScalarBadBucket, "bad-bucket"},
    {kScalarBadElement, "bad-element"},
    {kScalarBadScale, "bad-scale"},
    {kScalarLossScale, "loss-scale"},
    {kScalarScaleDynamic, "loss-scale-dynamic"},
    {kScalarScaleWindow, "loss-scale-window"},
    {kScalarScaleHysteresis, "loss-scale-hysteresis"},
    {kScalarScaleLeast, "loss-scale-min"},
    {kScalarScaleGood, "loss-scale-good"},
    {kScalarScaleSpare, "loss-scale-spare"},
    {kScalarSchedule0, "schedule-0"},
    {kScalarSchedule0 + 1, "schedule-1"},
    {kScalarSchedule0 + 2, "schedule-2"},
    {kScalarSchedule0 + 3, "schedule-3"},
    {kScalarSchedule0 + 4, "schedule-4"},
    {kScalarSchedule0 + 5, "schedule-5"},
    {kScalarSchedule0 + 6, "schedule-6"},
    {kScalarSchedule7, "schedule-7"},
};

/// Whether two names stand for one scalar, or one lies among the groups.
constexpr bool scalarsOverlap() {
  for (const auto &[scalar, name] : kScalarNames) {
    int holders = 0;
    for (const auto &[other, otherName] : kScalarNames)
      holders += other == scalar ? 1 : 0;
    if (holders != 1 || scalar >= kScalarGroups)
      return true;
  }
  return false;
}
static_assert(!scalarsOverlap());

constexpr int kMaxGroups = (kScalars - kScalarGroups) / 2;

} // namespace zerocc
