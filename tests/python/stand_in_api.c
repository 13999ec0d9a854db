/* SPDX-FileCopyrightText: 2026 the Tutti authors
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * A stand-in for libtutti.so: the functions of tutti/tutti.h with fixed answers.
 */
#include <stdlib.h>
#include <string.h>

static char* document(const char* text) { return strdup(text); }

const char* tutti_version(void) { return "0.1.0"; }
int tutti_abi_version(void) { return 1; }
void tutti_free(char* text) { free(text); }

char* tutti_config_json(void) {
  return document(
      "[{\"name\": \"TUTTI_STRICT\", \"type\": \"bool\", \"unit\": \"\", \"range\": \"0|1\", "
      "\"default\": false, \"value\": true, \"origin\": \"environment\", \"effect\": \"Strict.\", "
      "\"since\": \"0.1\"}]");
}

char* tutti_config_problems_json(void) {
  return document("[{\"error\": false, \"text\": \"TUTTI_STRIKT: did you mean TUTTI_STRICT?\"}]");
}

char* tutti_explain_json(const char* query) {
  if (strstr(query, "\"bytes\": 13")) return document("{\"error\": \"thirteen\"}");
  return document(
      "{\"call\": {\"collective\": \"allreduce\", \"bytes\": 65536, \"memory\": \"device\", "
      "\"op\": \"sum\", \"type\": \"float32\"}, \"communicator\": {\"ranks\": 8, \"nodes\": 2, "
      "\"ranks_per_node\": 4, \"oversubscribed\": false, \"mpi_name\": \"mpich\", "
      "\"mpi_device_aware\": false, \"ccl\": true, \"ccl_name\": \"nccl\"}, "
      "\"plan\": \"ccl-beta\", \"parameters\": {}, \"rule\": {\"index\": 0, \"origin\": "
      "\"file.json:12\", \"text\": \"any -> ccl\"}, \"fallback\": false, \"refused\": [], "
      "\"plans\": [{\"plan\": \"ccl-beta\", \"possible\": true}, {\"plan\": \"mpi-gamma\", "
      "\"possible\": false, \"reason\": \"2 nodes\"}, {\"plan\": \"mpi-beta\", \"possible\": "
      "true}], \"table_hash\": \"0\"}");
}

char* tutti_tuning_check_json(const char* path) {
  return document(strstr(path, "bad") ? "{\"error\": \"bad.json:3: bytez: unknown key\"}"
                                      : "{\"ok\": true, \"rules\": 2}");
}

char* tutti_tuning_import_json(const char* path) {
  (void)path;
  return document("{\"tuning\": {\"rules\": []}, \"not_carried\": [\"line 4: tree\"]}");
}

char* tutti_tuning_schema_json(void) { return document("{\"$defs\": {}}"); }

char* tutti_tuning_show_json(void) {
  return document(
      "{\"file\": null, \"rules\": [{\"collective\": [\"bcast\"], \"bytes\": {\"max\": \"8K\"}, "
      "\"plan\": \"mpi\", \"origin\": \"default: small\"}]}");
}

char* tutti_topology_json(const char* file, const char* root) {
  (void)root;
  if (strstr(file, "bad"))
    return document("{\"error\": \"bad.json:3: nodes[0].railz: unknown key\"}");
  return document(
      "{\"schema\": \"tutti-topology/1\", \"nodes\": [{\"hosts\": [\"a\", \"<b>\"], \"sockets\": "
      "[{\"number\": 0, \"cpus\": \"0-3\"}, {\"number\": 1, \"cpus\": \"4-7\"}], \"numa_nodes\": "
      "[{\"number\": 0, \"socket\": 0, \"cpus\": \"0-3\"}, {\"number\": 1, \"socket\": 1, "
      "\"cpus\": "
      "\"4-7\"}], \"gpus\": [{\"name\": \"NVIDIA H200\", \"pci\": \"0000:1b:00.0\", \"numa\": 0, "
      "\"socket\": 0}, {\"pci\": \"0000:9d:00.0\", \"numa\": 1, \"socket\": 1}], \"nics\": "
      "[{\"name\": "
      "\"mlx5_0\", \"net\": \"ib0\", \"mbit_s\": 400000, \"rdma\": true, \"up\": true, \"numa\": "
      "0, "
      "\"socket\": 0}, {\"name\": \"eno1\", \"net\": \"eno1\", \"mbit_s\": 1000, \"rdma\": false, "
      "\"up\": false}], \"links\": [{\"between\": [\"GPU0\", \"GPU1\"], \"kind\": \"NV18\", "
      "\"mbit_s\": 3600000}]}], \"derived\": [{\"devices\": [\"GPU0\", \"GPU1\", \"NIC0\", "
      "\"NIC1\"], "
      "\"matrix\": [[\"X\", \"NV18\", \"PIX\", \"SYS\"], [\"NV18\", \"X\", \"SYS\", \"SYS\"], "
      "[\"PIX\", \"SYS\", \"X\", \"SYS\"], [\"SYS\", \"SYS\", \"SYS\", \"X\"]], \"nics_of_gpus\": "
      "[[0], [0]], \"rail_nics\": [0], \"rails\": 1}], \"unavailable\": [\"XGMI: no library\"]}");
}

char* tutti_machine_json(void) {
  return document(
      "{\"device\": {\"name\": null, \"library\": null, \"reason\": \"no GPU\", \"devices\": []}, "
      "\"ccl\": {\"reason\": \"no NCCL\"}}");
}
