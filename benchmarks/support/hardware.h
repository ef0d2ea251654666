/// Facts needed to interpret figures: machine, date, versions, and load of the machine.
#pragma once

namespace cohort::bench {

/// Prints three lines.
void print_hardware();

}  // namespace cohort::bench
