// From what was timed on a machine to the figures of a cluster file. Pure functions: who measured, and how,
// is not their concern.
#pragma once

#include <string>
#include <vector>

#include "config/run_file.hpp"

namespace lockstep::cluster {

// One kernel that was timed, or several equal ones.
struct KernelSample {
  double size = 0;     // FLOPs, or bytes of a kernel that is bound by memory traffic
  double seconds = 0;  // of one, in the middle of all times that were taken
  double count = 1;    // how many of them there are in the work that the curve shall price
};

// The middle value; the mean of the two middle ones of an even number. The list must not be empty.
double median(std::vector<double> values);

// The highest rate (size / seconds) among the samples.
double fastest_rate(const std::vector<KernelSample>& samples);

// The shares of `peak` (size / second) that Hardware reads. Samples are put together by size, four classes to
// a factor of ten; a class becomes one point at its mean size, such that all its kernels together take the
// seconds that they took: kernels of one size that differ in speed (a norm, an activation function) are
// priced right in the mixture in which they were timed, and not one by one.
//
// A class whose kernels took less time than those of a smaller class is put together with it: Hardware never
// makes a larger kernel shorter. Throws invalid_argument without samples, for sizes or times that are not
// above 0, and when a share comes out above 1 (the peak is too low: fastest_rate gives the least that holds).
config::Curve fit_curve(const std::vector<KernelSample>& samples, double peak);

// The line seconds = latency + bytes x seconds_per_byte through messages between two ranks. latency: the
// fastest of them; seconds_per_byte: over the largest, of what it took beyond that. At least two sizes.
struct MessageLine {
  double latency = 0;
  double seconds_per_byte = 0;
};
MessageLine fit_messages(const std::vector<config::TimedTransfer>& messages);

// The text of a cluster file: `header` (lines; each becomes a comment), then a [cluster] table with every
// figure of `cluster`, and the line that says that it is whole. Read back by cluster.file it gives the same
// figures; preset, device, file and gpus stay the run file's own.
std::string cluster_file_text(const config::ClusterConfig& cluster, const std::vector<std::string>& header);

}  // namespace lockstep::cluster
