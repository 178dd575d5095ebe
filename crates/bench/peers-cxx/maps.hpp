// The maps, each with the same few operations: get, insert (is it new), remove and update (was it there), slots (0 where the
// number means nothing).
#pragma once

#include <functional>
#include <mutex>
#include <random>
#include <shared_mutex>
#include <unordered_map>

#include <tbb/concurrent_hash_map.h>
#include <tbb/version.h>
#include <tsl/hopscotch_map.h>

#include "phase.hpp"

// A folded 128-bit product, as rapidhash ends with; the seed differs from run to run.
struct Hash {
    static inline const u64 seed = (u64{std::random_device{}()} << 32) ^ std::random_device{}();

    std::size_t operator()(u64 key) const {
        const auto product = static_cast<unsigned __int128>(key ^ seed) * (seed | 0x9e3779b97f4a7c15);
        const auto folded = static_cast<u64>(product) ^ static_cast<u64>(product >> 64);
        const auto again = static_cast<unsigned __int128>(folded ^ 0x8bb84b93962eacc9) * 0x2d358dccaa6c78a5;
        return static_cast<u64>(again) ^ static_cast<u64>(again >> 64);
    }

    // oneTBB's names for it.
    std::size_t hash(u64 key) const { return (*this)(key); }
    bool equal(u64 one, u64 other) const { return one == other; }
};

// oneTBB: chains, a readers-writer lock a bucket and one an item.
template <class V>
class Tbb {
public:
    explicit Tbb(std::size_t room) : map(room > 0 ? Map(room) : Map()) {}

    bool get(u64 key, V& value) const {
        typename Map::const_accessor item;
        if (!map.find(item, key)) return false;
        value = item->second;
        return true;
    }

    bool insert(u64 key, const V& value) { return map.insert({key, value}); }
    bool remove(u64 key) { return map.erase(key); }

    bool update(u64 key) {
        typename Map::accessor item;
        if (!map.find(item, key)) return false;
        item->second.update();
        return true;
    }

    u64 slots() const { return 0; }

private:
    using Map = tbb::concurrent_hash_map<u64, V, Hash>;
    Map map;
};

// For a map that one thread has to itself.
struct NoLock {
    void lock() {}
    void unlock() {}
    void lock_shared() {}
    void unlock_shared() {}
};

// Powers of two, or one of them for good: then a key without a place in its neighbourhood goes into tsl's overflow list, where
// the table would otherwise double, some time between nine tenths and full.
class Growth : public tsl::hh::power_of_two_growth_policy<2> {
public:
    static inline bool grows = true;

    explicit Growth(std::size_t& count) : power_of_two_growth_policy(count), buckets(count) {}

    std::size_t next_bucket_count() const { return grows ? power_of_two_growth_policy::next_bucket_count() : buckets; }

private:
    std::size_t buckets;
};

// tsl: hopscotch hashing with neighbourhoods of 62 slots, for one writer or many readers, behind a lock.
template <class V, class Lock>
class Hopscotch {
public:
    explicit Hopscotch(std::size_t room) {
        if (room == 0) return;
        Growth::grows = false;
        map.max_load_factor(0.95f);
        map.rehash(room);
    }

    bool get(u64 key, V& value) const {
        const std::shared_lock guard(lock);
        const auto found = map.find(key);
        if (found == map.end()) return false;
        value = found->second;
        return true;
    }

    bool insert(u64 key, const V& value) {
        const std::unique_lock guard(lock);
        return map.insert({key, value}).second;
    }

    bool remove(u64 key) {
        const std::unique_lock guard(lock);
        return map.erase(key) > 0;
    }

    bool update(u64 key) {
        const std::unique_lock guard(lock);
        const auto found = map.find(key);
        if (found == map.end()) return false;
        found.value().update();
        return true;
    }

    u64 slots() const { return map.bucket_count(); }

private:
    mutable Lock lock;
    tsl::hopscotch_map<u64, V, Hash, std::equal_to<u64>, std::allocator<std::pair<u64, V>>, 62, false, Growth> map;
};

// The standard library's: chains, behind a lock.
template <class V>
class Unordered {
public:
    explicit Unordered(std::size_t room) { map.reserve(room); }

    bool get(u64 key, V& value) const {
        const std::lock_guard guard(lock);
        const auto found = map.find(key);
        if (found == map.end()) return false;
        value = found->second;
        return true;
    }

    bool insert(u64 key, const V& value) {
        const std::lock_guard guard(lock);
        return map.insert({key, value}).second;
    }

    bool remove(u64 key) {
        const std::lock_guard guard(lock);
        return map.erase(key) > 0;
    }

    bool update(u64 key) {
        const std::lock_guard guard(lock);
        const auto found = map.find(key);
        if (found == map.end()) return false;
        found->second.update();
        return true;
    }

    u64 slots() const { return 0; }

private:
    mutable std::mutex lock;
    std::unordered_map<u64, V, Hash> map;
};
