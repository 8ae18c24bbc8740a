//! A cache that outlives its process.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt as _;
use std::time::Duration;

use masthead_core::Revision;
use masthead_informer::{BuildError, Factory, Informer, Representation};
use tempfile::TempDir;

use crate::world::{Thing, World};

fn informer(world: &World, place: &TempDir, how: Representation) -> (Factory, Informer<Thing>) {
    let factory = Factory::new(world.clone());
    let builder = factory.informer::<Thing>().representation(how);
    let informer = builder.saved_at(place.path().join("things")).build().unwrap();
    (factory, informer)
}

/// A life that ends in order.
async fn live(world: &World, place: &TempDir, how: Representation) {
    let (factory, informer) = informer(world, place, how);
    factory.start();
    informer.wait_for_sync().await.unwrap();
    informer.wait_for(Revision(world.rv()), Duration::from_secs(60)).await.unwrap();
    factory.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_saved_cache_is_there_at_once_and_only_what_followed_is_asked_for() {
    for how in [Representation::Raw, Representation::Compact] {
        let (world, place) = (World::new(1), tempfile::tempdir().unwrap());
        for n in 0..100 {
            world.put(&format!("a/n{n}"), n, "");
        }
        live(&world, &place, how).await;
        world.delete("a/n5");
        world.put("a/n6", 99, "");
        let before = world.requests();
        let (factory, informer) = informer(&world, &place, how);
        assert_eq!(informer.lister().len(), 100, "before anything is asked");
        factory.start();
        informer.wait_for(Revision(world.rv()), Duration::from_secs(60)).await.unwrap();
        assert_eq!(world.requests(), (before.0, before.1 + 1), "a watch and no list");
        assert_eq!(informer.lister().len(), 99);
        assert_eq!(informer.lister().get_str("a/n6").unwrap().decode().unwrap().value, 99);
        assert_eq!(informer.lister().get_str("a/n7").unwrap().decode().unwrap().value, 7);
    }
}

#[tokio::test(start_paused = true)]
async fn a_saved_cache_is_for_its_owner_only() {
    let (world, place) = (World::new(3), tempfile::tempdir().unwrap());
    world.put("a/n", 1, "");
    let saved = place.path().join("things");
    let mode = || std::fs::metadata(&saved).unwrap().permissions().mode() & 0o777;
    let for_all = || Permissions::from_mode(0o644);
    // What a process left that was stopped while it wrote.
    let beside = place.path().join("things.new");
    std::fs::write(&beside, "").unwrap();
    std::fs::set_permissions(&beside, for_all()).unwrap();
    live(&world, &place, Representation::Raw).await;
    assert_eq!(mode(), 0o600);
    // What an earlier version left.
    std::fs::set_permissions(&saved, for_all()).unwrap();
    let (_factory, informer) = informer(&world, &place, Representation::Raw);
    assert_eq!((informer.lister().len(), mode()), (1, 0o600));
}

#[tokio::test(start_paused = true)]
async fn if_the_server_has_forgotten_what_followed_it_is_listed() {
    let (world, place) = (World::new(2), tempfile::tempdir().unwrap());
    world.put("a/n", 1, "");
    world.put("a/m", 1, "");
    live(&world, &place, Representation::Raw).await;
    world.delete("a/n");
    world.compact();
    let (factory, informer) = informer(&world, &place, Representation::Raw);
    factory.start();
    informer.wait_for(Revision(world.rv()), Duration::from_secs(60)).await.unwrap();
    assert_eq!(informer.lister().len(), 1);
    assert_eq!(informer.reports()[0].relists.expired, 1);
}

#[tokio::test(start_paused = true)]
async fn a_file_that_is_damaged_or_of_something_else_is_not_used() {
    let (world, place) = (World::new(3), tempfile::tempdir().unwrap());
    world.put("a/n", 1, "");
    live(&world, &place, Representation::Raw).await;
    let path = place.path().join("things");
    let whole = std::fs::read(&path).unwrap();
    for at in (0..whole.len()).step_by(7) {
        let mut damaged = whole.clone();
        damaged[at] ^= 1;
        std::fs::write(&path, damaged).unwrap();
        let (_factory, informer) = informer(&world, &place, Representation::Raw);
        assert!(!informer.has_synced(), "byte {at}");
        std::fs::write(&path, &whole[..at]).unwrap();
        let (_factory, informer) = self::informer(&world, &place, Representation::Raw);
        assert!(!informer.has_synced(), "cut at {at}");
    }
    std::fs::write(&path, whole).unwrap();
    let factory = Factory::new(world.clone());
    let other = factory.informer::<Thing>().labels("app=x").saved_at(&path).build().unwrap();
    assert!(!other.has_synced(), "other selectors");
    let typed = factory.informer::<Thing>().representation(Representation::Typed).saved_at(&path);
    assert!(matches!(typed.build(), Err(BuildError::TypedSaved)));
}
