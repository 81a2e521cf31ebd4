//! The bound, the order of leaving, and who waits for whom.

use super::*;

fn block(n: usize) -> Block {
    Block::new(vec![7; n], None)
}

#[test]
fn least_recently_used_goes_first_and_the_bound_holds() {
    let cache = Cache::new(3 * (100 + OVERHEAD));
    for id in [1, 2, 3, 1, 4] {
        cache.get(id.into(), None, None, || Ok(block(100))).unwrap();
    }
    assert!(cache.usage().0 <= 3 * (100 + OVERHEAD));
    let made = AtomicUsize::new(0);
    for id in [1, 3, 4, 2] {
        cache
            .get(id.into(), None, None, || {
                made.fetch_add(1, Ordering::Relaxed);
                Ok(block(100))
            })
            .unwrap();
    }
    assert_eq!(made.load(Ordering::Relaxed), 1, "only block 2 was dropped");
}

#[test]
fn a_block_over_the_bound_is_kept_alone() {
    let cache = Cache::new(10);
    cache.get(1.into(), None, None, || Ok(block(5))).unwrap();
    cache.get(2.into(), None, None, || Ok(block(1000))).unwrap();
    cache.get(2.into(), None, None, || panic!("kept")).unwrap();
    assert_eq!(cache.usage().2, 1);
}

#[test]
fn many_readers_of_one_cold_block_cause_one_decode() {
    let cache = Cache::new(1 << 20);
    let made = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..64 {
            scope.spawn(|| {
                let block = cache.get(9.into(), None, None, || {
                    made.fetch_add(1, Ordering::Relaxed);
                    std::thread::sleep(Duration::from_millis(30));
                    Ok(block(64))
                });
                assert_eq!(block.unwrap().length(), 64);
            });
        }
    });
    assert_eq!(made.load(Ordering::Relaxed), 1);
}

#[test]
fn another_version_is_another_block() {
    let cache = Cache::new(1 << 20);
    let version = |s: &str| Some(Version::Tag(s.into()));
    let (old, new) = (version("old"), version("new"));
    cache.get(1.into(), old.as_ref(), None, || Ok(Block::new(vec![1], old.clone()))).unwrap();
    let got = cache.get(1.into(), new.as_ref(), None, || Ok(Block::new(vec![2], new.clone()))).unwrap();
    assert_eq!(got.part(0, 9, <[u8]>::to_vec).unwrap(), [2]);
    assert!(cache.get(1.into(), old.as_ref(), None, || Err(Error::not_found())).is_err());
}

#[test]
fn an_error_answers_twice_and_a_panic_ends_the_wait() {
    let cache = Cache::new(1 << 20);
    assert_eq!(cache.get(1.into(), None, None, || Err(Error::corrupt("x"))).unwrap_err().kind(), Kind::Corrupt);
    assert_eq!(cache.get(1.into(), None, None, || panic!("asked again at once")).unwrap_err().kind(), Kind::Corrupt);
    let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| cache.get(2.into(), None, None, || panic!("decoder"))));
    assert!(result.is_err());
    assert_eq!(cache.get(2.into(), None, None, || Ok(block(1))).unwrap_err().kind(), Kind::Bug);
}

#[test]
fn who_begins_to_make_a_block_is_the_only_one() {
    let cache = Cache::new(1 << 20);
    let begin = |id: u64| cache.begin(id.into(), None);
    let making = begin(1).unwrap();
    assert!(begin(1).is_none() && begin(2).is_some());
    // Others wait for it, and get what it makes.
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| cache.get(1.into(), None, None, || panic!("it is being made")).unwrap().length());
        while cache.counters().waits.load(Ordering::Relaxed) == 0 {
            std::thread::sleep(Duration::from_millis(1));
        }
        making.make(None, || Ok(block(64))).unwrap();
        assert_eq!(waiting.join().unwrap(), 64);
    });
    // It is in memory now; what has just failed is not tried again; what was given up (as 2 above) has failed.
    assert!(begin(1).is_none());
    assert!(begin(3).unwrap().make(None, || Err(Error::corrupt("x"))).is_err());
    assert!(begin(3).is_none());
    assert_eq!(cache.get(2.into(), None, None, || panic!("asked again at once")).unwrap_err().kind(), Kind::Bug);
}

#[test]
fn of_blocks_that_the_kernel_has_too_the_latest_are_kept() {
    let cache = Cache::new(u64::MAX);
    let part = handed::MOST / 4;
    let get = |id: u64| cache.get(id.into(), None, None, || Ok(block(usize::try_from(part).unwrap() - 300))).unwrap();
    let give = |id: u64| cache.handed(id.into(), &get(id));
    (0..4).for_each(give);
    assert_eq!(cache.usage().2, 4);
    get(9);
    // One that was asked for again is of use here.
    get(0);
    (4..8).for_each(give);
    let kept: Vec<u64> = (0..10).filter(|id| cache.has((*id).into())).collect();
    assert_eq!(kept, [0, 4, 5, 6, 7, 9]);
    assert_eq!(cache.usage().0, cache.state.lock().blocks.iter().map(|(_, block)| block.weight()).sum::<u64>());
    assert_eq!(cache.counters().evictions.load(Ordering::Relaxed), 0);
    // What is not there any more, or is another block by now, is not counted.
    let old = get(4);
    cache.state.lock().put(4.into(), Arc::new(block(1)));
    cache.handed(4.into(), &old);
    (10..14).for_each(give);
    assert!(cache.has(4.into()));
}

#[test]
fn what_leaves_for_want_of_room_is_not_counted_as_the_kernels() {
    let part = handed::MOST / 4;
    let cache = Cache::new(2 * part);
    for id in 0..6u64 {
        let block = cache.get(id.into(), None, None, || Ok(block(usize::try_from(part).unwrap() - 300))).unwrap();
        cache.handed(id.into(), &block);
    }
    assert_eq!((cache.usage().2, cache.counters().evictions.load(Ordering::Relaxed)), (2, 4));
    assert!(cache.has(4.into()) && cache.has(5.into()));
}
