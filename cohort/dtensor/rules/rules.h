/// The library's own rules, family by family. Each function adds its rules to the table (dispatch/rule_table.h).
#pragma once

namespace cohort::dtensor {

void add_pointwise_rules();
void add_view_rules();
void add_reduction_rules();
void add_matrix_rules();
void add_network_rules();
void add_embedding_rules();
void add_index_rules();
void add_class_rules();
void add_loss_rules();
void add_creation_rules();
void add_optimizer_rules();
/// Replaces functions that LibTorch composes from others, some of them on plain tensors, by ours for DTensors.
void add_composed_functions();
/// Calls all of the above.
void add_all_rules();

}  // namespace cohort::dtensor
