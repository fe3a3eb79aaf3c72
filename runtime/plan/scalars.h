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
  // what the schedule needs beside warm-up, total and least rate (lr_schedule.cpp); set by the host
  kScalarSchedule0 = 24,
  kScalarSchedule7 = 31,
  // per parameter group g: kScalarGroups + 2 g = weight decay, + 1 = learning-rate factor; set by the host
  kScalarGroups = 32,
  kScalars = 64
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
};

constexpr int kMaxGroups = (kScalars - kScalarGroups) / 2;

} // namespace zerocc
