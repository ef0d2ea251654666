#include "tests/store/store_kinds.h"

#include <stdexcept>

#include "cohort/store/etcd/etcd_store.h"
#include "cohort/store/file/file_store.h"
#include "cohort/store/keys/hash_store.h"
#include "cohort/store/keys/prefix_store.h"
#include "cohort/store/tcp/tcp_client.h"
#include "cohort/store/tcp/tcp_server.h"
#include "tests/store/etcd_server.h"
#include "tests/store/times.h"
#include "tests/support/temporary_folder.h"

namespace cohort::store {
namespace {

template <class T>
T must(base::Result<T> result) {
  if (!result) throw std::runtime_error(result.error().describe());
  return std::move(*result);
}

class HashKind : public StoreKind {
 public:
  std::unique_ptr<Store> open() override { return must(first_->clone()); }

 protected:
  const std::unique_ptr<HashStore> first_ = must(HashStore::open());
};

class PrefixKind final : public HashKind {
 public:
  std::unique_ptr<Store> open() override {
    return must(PrefixStore::open({.prefix = "part", .store = must(first_->clone())}));
  }
  std::string shown(const std::string& key) const override { return "part/" + key; }
};

class FileKind final : public StoreKind {
 public:
  std::unique_ptr<Store> open() override {
    return must(FileStore::open({.path = folder_ / "store", .timeout = kHangLimit}));
  }

 private:
  test::TemporaryFolder folder_;
};

class TcpKind final : public StoreKind {
 public:
  std::unique_ptr<Store> open() override {
    return must(TcpClient::connect({.port = server_->port(), .timeout = kHangLimit}));
  }

 private:
  const std::unique_ptr<TcpServer> server_ = must(TcpServer::start({.host = "127.0.0.1"}));
};

class EtcdKind final : public StoreKind {
 public:
  std::unique_ptr<Store> open() override {
    return must(EtcdStore::connect({.port = server_.port(), .job = "conformance", .timeout = kHangLimit}));
  }

 private:
  EtcdServer server_;
};

}  // namespace

std::unique_ptr<StoreKind> make_store_kind(const std::string& name) {
  if (name == "hash") return std::make_unique<HashKind>();
  if (name == "prefix") return std::make_unique<PrefixKind>();
  if (name == "file") return std::make_unique<FileKind>();
  if (name == "tcp") return std::make_unique<TcpKind>();
  if (name == "etcd") return std::make_unique<EtcdKind>();
  throw std::runtime_error("no store is called " + name);
}

}  // namespace cohort::store
