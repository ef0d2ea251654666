/// The rules that come with the library, family by family. Each adds its own to the table (dispatch/rule_table.h).
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
/// Functions that LibTorch composes of others, some of them on plain tensors: ours, for DTensors.
void add_composed_functions();
/// All of them.
void add_all_rules();

}  // namespace cohort::dtensor
