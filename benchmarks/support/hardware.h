/// What a figure means nothing without: machine, date, versions, and how busy the machine was.
#pragma once

namespace cohort::bench {

/// Prints three lines.
void print_hardware();

}  // namespace cohort::bench
