// A map in C++ under measurement, for `guira bench map` (crates/bench/src/map/process.rs): reads "open MAP VALUE_BYTES ROOM",
// answers "ready", then plays each phase it reads and answers what came of it. Ends at the first line that makes no sense.
#include <iostream>
#include <string>

#include "maps.hpp"
#include "phase.hpp"
#include "play.hpp"

template <class Map, class V>
int serve(std::size_t room) {
    Map map(room);
    std::cout << "ready" << std::endl;
    for (std::string line; std::getline(std::cin, line);) {
        Phase phase;
        if (!phase.parse(line) || phase.batched) {
            std::cerr << "maps: no phase of ours: " << line << '\n';
            return 1;
        }
        if (phase.work == Work::slots) std::cout << "slots " << map.slots() << '\n';
        else play<Map, V>(map, phase, std::cout);
        std::cout.flush();
    }
    return 0;
}

template <std::size_t Words>
int open(const std::string& map, std::size_t room) {
    using V = Value<Words>;
    if (map == "tbb") return serve<Tbb<V>, V>(room);
    if (map == "hopscotch") return serve<Hopscotch<V, std::shared_mutex>, V>(room);
    if (map == "hopscotch-alone") return serve<Hopscotch<V, NoLock>, V>(room);
    if (map == "unordered") return serve<Unordered<V>, V>(room);
    std::cerr << "maps: no map of ours: " << map << '\n';
    return 1;
}

int main(int count, char** arguments) {
    if (count > 1 && arguments[1] == std::string("--version")) {
        std::cout << "oneTBB " << TBB_VERSION_MAJOR << '.' << TBB_VERSION_MINOR << ", Debian's tsl::hopscotch_map, g++ "
                  << __VERSION__ << '\n';
        return 0;
    }
    std::string verb, map;
    std::size_t value_bytes = 0, room = 0;
    std::cin >> verb >> map >> value_bytes >> room;
    std::cin.ignore();
    if (std::cin && verb == "open") {
        switch (value_bytes) {
            case 8: return open<1>(map, room);
            case 16: return open<2>(map, room);
            case 64: return open<8>(map, room);
            case 256: return open<32>(map, room);
            case 1024: return open<128>(map, room);
            default: break;
        }
    }
    std::cerr << "maps: started by `guira bench map`, which says what to open\n";
    return 1;
}
