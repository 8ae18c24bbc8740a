//! Every bound of this crate, with its reason.

/// Longest object name: Kubernetes' DNS subdomain, and the longest a path segment should be.
pub const NAME_BYTES_MAX: usize = 253;
/// Longest namespace. Kubernetes allows a DNS label (63); we take what fits a name.
pub const NAMESPACE_BYTES_MAX: usize = 253;
/// Largest body of one object: Kubernetes' request limit of 3 MiB (W38).
pub const BODY_BYTES_MAX: usize = 3 * 1024 * 1024;
/// Largest object that is parsed at all. Far above what any server accepts; positions are 32-bit.
pub const OBJECT_BYTES_MAX: usize = 64 * 1024 * 1024;
/// Deepest nesting of objects and arrays in a body. Kubernetes' own types stay below 30; the scanner
/// recurses, and 64 frames of it are under 16 KiB of stack.
pub const JSON_DEPTH_MAX: usize = 64;
/// Most labels that a head keeps. The annotations-and-labels limit of Kubernetes (256 KiB) would allow
/// some thousands; a head with more than this is hostile.
pub const LABELS_MAX: usize = 4096;
/// Most owner references that a head keeps.
pub const OWNERS_MAX: usize = 256;
/// Most fields of one resource that selectors may name: custom resources may declare 8, pods have 8.
pub const SELECTABLE_FIELDS_MAX: usize = 64;
/// Longest selector text of any sort: 512 values of 63 characters with their commas. Common proxies
/// end at 8 KiB of URL. 100,000 watches that all used it up would hold 3.2 GB: whoever holds
/// watches for strangers bounds the sum as well.
pub const SELECTOR_BYTES_MAX: usize = 32 * 1024;
/// Most terms of one selector. Hand-written ones have fewer than ten, generated ones a few dozen.
pub const REQUIREMENTS_MAX: usize = 128;
/// Most values in one `in (…)`: what [`SELECTOR_BYTES_MAX`] holds of the longest ones. Values are
/// compared one after the other, so this also bounds what one object costs.
pub const SELECTOR_VALUES_MAX: usize = 512;
/// Longest name part of a label's key, and longest label value (Kubernetes).
pub const LABEL_NAME_BYTES_MAX: usize = 63;
/// Longest prefix of a label's key: a DNS subdomain (Kubernetes).
pub const LABEL_PREFIX_BYTES_MAX: usize = 253;
/// Most hash ranges of a shard selector, after merging: a ring with 256 points for each member.
pub const SHARD_RANGES_MAX: usize = 256;
/// Largest page of a list that is taken apart: 100,000 pods of 10 KB in one answer are 1 GB, twice
/// that still has 32-bit positions.
pub const LIST_BYTES_MAX: usize = 2 * 1024 * 1024 * 1024;
/// Most items of one page: 4 million ranges are 64 MiB, and no server holds that many objects.
pub const LIST_ITEMS_MAX: usize = 4 * 1024 * 1024;
/// Longest line of a watch: the largest object and 1 KiB for the envelope and white space.
pub const WATCH_LINE_BYTES_MAX: usize = OBJECT_BYTES_MAX + 1024;
/// Longest part of an answer that is no `Status` that an error quotes: enough for a proxy's
/// sentence, too little for a page of HTML to fill a log.
pub const QUOTED_ANSWER_BYTES_MAX: usize = 1024;
/// Longest text of a panic that is kept: reports hold it, and a sentence or two of it say what happened.
pub const PANIC_TEXT_BYTES_MAX: usize = 1024;
/// Longest continue token: two names of 253 bytes, each byte escaped, with the rest of the JSON are
/// 1.1 KiB, in base64 1.5 KiB.
pub const TOKEN_BYTES_MAX: usize = 2048;
/// Longest query of a list or watch: a label selector at its limit with every byte percent-encoded
/// (96 KiB), and 32 KiB for everything else.
pub const QUERY_BYTES_MAX: usize = 3 * SELECTOR_BYTES_MAX + 32 * 1024;

/// After so many objects it is looked which strings their heads have in common: soon, and again when rarer
/// ones, as the names of 200 nodes, have been seen several times.
pub const COMMON_AT: [usize; 2] = [64, 1024];
/// A string that was seen this often is common.
pub const COMMON_MIN: usize = 3;
/// Strings that are counted for it: half of the 40 of each of those objects.
pub const COMMON_STRINGS_MAX: usize = 20_000;
/// Bytes of all common strings, in one text: 1,500 names.
pub const COMMON_BYTES_MAX: usize = 64 * 1024;
