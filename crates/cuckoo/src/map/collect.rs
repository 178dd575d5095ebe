//! What the standard collections and serde ask for.

use std::{
    fmt,
    hash::{BuildHasher, Hash},
};

use super::{Builder, CuckooMap, Storage, Ways, Width};

impl<K, V, S, L, const WAYS: usize> Default for CuckooMap<K, V, S, L, WAYS>
where
    S: Default,
    L: Storage<K, V>,
    Ways<WAYS>: Width,
{
    fn default() -> Self {
        let built = Builder::new().hasher(S::default()).build();
        built.unwrap_or_else(|error| panic!("an empty map: {error}"))
    }
}

impl<K, V, S, L, const WAYS: usize> FromIterator<(K, V)> for CuckooMap<K, V, S, L, WAYS>
where
    K: Hash + Eq,
    S: BuildHasher + Default,
    L: Storage<K, V>,
    Ways<WAYS>: Width,
{
    /// # Panics
    /// If there is no room, as [`CuckooMap::insert`].
    fn from_iter<I: IntoIterator<Item = (K, V)>>(pairs: I) -> Self {
        let mut map = Self::default();
        map.extend(pairs);
        map
    }
}

impl<K, V, S, L, const WAYS: usize, const N: usize> From<[(K, V); N]> for CuckooMap<K, V, S, L, WAYS>
where
    K: Hash + Eq,
    S: BuildHasher + Default,
    L: Storage<K, V>,
    Ways<WAYS>: Width,
{
    fn from(pairs: [(K, V); N]) -> Self {
        Self::from_iter(pairs)
    }
}

impl<K, V, S, L, const WAYS: usize> Extend<(K, V)> for CuckooMap<K, V, S, L, WAYS>
where
    K: Hash + Eq,
    S: BuildHasher,
    L: Storage<K, V>,
    Ways<WAYS>: Width,
{
    /// # Panics
    /// If there is no room, as [`CuckooMap::insert`].
    fn extend<I: IntoIterator<Item = (K, V)>>(&mut self, pairs: I) {
        (&*self).extend(pairs);
    }
}

impl<K, V, S, L, const WAYS: usize> Extend<(K, V)> for &CuckooMap<K, V, S, L, WAYS>
where
    K: Hash + Eq,
    S: BuildHasher,
    L: Storage<K, V>,
    Ways<WAYS>: Width,
{
    /// # Panics
    /// If there is no room, as [`CuckooMap::insert`].
    fn extend<I: IntoIterator<Item = (K, V)>>(&mut self, pairs: I) {
        self.insert_many(pairs).unwrap_or_else(|full| panic!("{full}"));
    }
}

impl<K, V, S, L, const WAYS: usize> fmt::Debug for CuckooMap<K, V, S, L, WAYS>
where
    K: Hash + Eq + fmt::Debug,
    V: fmt::Debug,
    S: BuildHasher,
    L: Storage<K, V>,
    Ways<WAYS>: Width,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut map = f.debug_map();
        self.for_each(|key, value| {
            map.entry(key, value);
        });
        map.finish()
    }
}

#[cfg(feature = "serde")]
mod serialization {
    use std::{
        fmt,
        hash::{BuildHasher, Hash},
        marker::PhantomData,
    };

    use serde::{
        Deserialize, Deserializer, Serialize, Serializer,
        de::{Error, MapAccess, Visitor},
    };

    use super::{CuckooMap, Storage, Ways, Width};

    /// Most keys that memory is taken for because a length says so, before they have come.
    const RESERVED_MAX: usize = 1 << 16;

    /// Of a copy of all pairs: some formats write the length first, so that it must not change on the way.
    impl<K, V, S, L, const WAYS: usize> Serialize for CuckooMap<K, V, S, L, WAYS>
    where
        K: Hash + Eq + Serialize + Clone,
        V: Serialize + Clone,
        S: BuildHasher,
        L: Storage<K, V>,
        Ways<WAYS>: Width,
    {
        fn serialize<T: Serializer>(&self, serializer: T) -> Result<T::Ok, T::Error> {
            let pairs: Vec<(K, V)> = self.iter().collect();
            serializer.collect_map(pairs.iter().map(|(key, value)| (key, value)))
        }
    }

    impl<'de, K, V, S, L, const WAYS: usize> Deserialize<'de> for CuckooMap<K, V, S, L, WAYS>
    where
        K: Hash + Eq + Deserialize<'de>,
        V: Deserialize<'de>,
        S: BuildHasher + Default,
        L: Storage<K, V>,
        Ways<WAYS>: Width,
    {
        fn deserialize<T: Deserializer<'de>>(deserializer: T) -> Result<Self, T::Error> {
            deserializer.deserialize_map(Pairs(PhantomData))
        }
    }

    struct Pairs<M>(PhantomData<M>);

    impl<'de, K, V, S, L, const WAYS: usize> Visitor<'de> for Pairs<CuckooMap<K, V, S, L, WAYS>>
    where
        K: Hash + Eq + Deserialize<'de>,
        V: Deserialize<'de>,
        S: BuildHasher + Default,
        L: Storage<K, V>,
        Ways<WAYS>: Width,
    {
        type Value = CuckooMap<K, V, S, L, WAYS>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a map")
        }

        fn visit_map<A: MapAccess<'de>>(self, mut pairs: A) -> Result<Self::Value, A::Error> {
            let map = Self::Value::default();
            map.reserve(pairs.size_hint().unwrap_or(0).min(RESERVED_MAX)).map_err(Error::custom)?;
            while let Some((key, value)) = pairs.next_entry()? {
                map.upsert(key, value).map_err(|full| Error::custom(format_args!("{full}")))?;
            }
            Ok(map)
        }
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    #[test]
    fn collections_become_maps_and_maps_collections() {
        let map: CuckooMap<u32, u32> = (0..100).map(|number| (number, number * number)).collect();
        (&map).extend([(100, 10_000)]);
        let mut pairs: Vec<_> = map.iter().collect();
        pairs.sort_unstable();
        assert_eq!(pairs, (0..=100).map(|number| (number, number * number)).collect::<Vec<_>>());
        assert_eq!(format!("{:?}", CuckooMap::<&str, i32>::from([("one", 1)])), r#"{"one": 1}"#);
    }

    #[cfg(feature = "serde")]
    #[test]
    fn a_map_survives_json() {
        let map: CuckooMap<String, Vec<u8>> = CuckooMap::from([("a".into(), vec![1]), ("b".into(), vec![])]);
        let json = serde_json::to_string(&map).expect("a map of strings");
        let back: CuckooMap<String, Vec<u8>> = serde_json::from_str(&json).expect("what was written");
        assert_eq!((back.len(), back.get("a"), back.get("b")), (2, Some(vec![1]), Some(vec![])));
        assert!(serde_json::from_str::<CuckooMap<String, u8>>(r#"{"a": 300}"#).is_err());
    }

    #[cfg(feature = "serde")]
    #[test]
    fn a_format_that_writes_the_length_first_is_told_it() {
        use serde_test::{Token, assert_ser_tokens};
        let map: CuckooMap<u8, char> = CuckooMap::from([(1, 'a')]);
        assert_ser_tokens(&map, &[Token::Map { len: Some(1) }, Token::U8(1), Token::Char('a'), Token::MapEnd]);
    }
}
