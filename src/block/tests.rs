//! Blocks against what numpy does with the same ones (values worked out by `numpy` where they are not obvious).

#![allow(clippy::arithmetic_side_effects, clippy::cast_possible_truncation, reason = "small known numbers")]

use super::*;

#[test]
fn numbers_are_reversed() {
    for width in [1, 2, 4, 8, 16, 3] {
        let bytes: Vec<u8> = (0..width as u8 * 7).collect();
        let mut swapped = bytes.clone();
        swap(&mut swapped, width, &[Swap { offset: 0, width, count: 1 }]);
        let expected: Vec<u8> = bytes.chunks(width).flat_map(|n| n.iter().rev().copied()).collect();
        assert_eq!(swapped, expected);
    }
}

#[test]
fn parts_of_elements_are_reversed() {
    // A complex number, and a structure of u8, >u2, >u4[2].
    let mut complex: Vec<u8> = (0..16).collect();
    swap(&mut complex, 16, &[Swap { offset: 0, width: 8, count: 2 }]);
    assert_eq!(complex, [7, 6, 5, 4, 3, 2, 1, 0, 15, 14, 13, 12, 11, 10, 9, 8]);
    let mut structure: Vec<u8> = (0..22).collect();
    let swaps = [Swap { offset: 1, width: 2, count: 1 }, Swap { offset: 3, width: 4, count: 2 }];
    swap(&mut structure, 11, &swaps);
    assert_eq!(structure, [0, 2, 1, 6, 5, 4, 3, 10, 9, 8, 7, 11, 13, 12, 17, 16, 15, 14, 21, 20, 19, 18]);
    // >u2, <u4: numbers of one width, and bytes after them that are none of these.
    let mut first: Vec<u8> = (0..12).collect();
    swap(&mut first, 6, &[Swap { offset: 0, width: 2, count: 1 }]);
    assert_eq!(first, [1, 0, 2, 3, 4, 5, 7, 6, 8, 9, 10, 11]);
    // Nothing sensible to do, and nothing done.
    let mut odd = vec![1, 2, 3];
    swap(&mut odd, 2, &[Swap { offset: 1, width: 2, count: usize::MAX }]);
    swap(&mut odd, 0, &[Swap { offset: 0, width: 0, count: 1 }]);
    assert_eq!(odd, [1, 2, 3]);
}

fn reversed(shape: &[usize]) -> Vec<usize> {
    (0..shape.len()).rev().collect()
}

#[test]
fn f_order_becomes_c_order() {
    // numpy.arange(6).reshape(2, 3).tobytes("F") is 0 3 1 4 2 5.
    assert_eq!(transpose(&[0, 3, 1, 4, 2, 5], &[2, 3], &[1, 0], 1).unwrap(), [0, 1, 2, 3, 4, 5]);
    for shape in [&[5, 7][..], &[1, 4, 1], &[3, 1, 5, 2], &[33, 2, 40], &[9], &[], &[2, 0, 3], &[70, 3, 2, 2]] {
        for item in [1, 2, 3, 4, 8, 16] {
            let count: usize = shape.iter().product();
            let c: Vec<u8> = (0..count * item).map(|i| (i * 31 % 251) as u8).collect();
            // By definition: the element of index (i, j, ...) stands at i + j * first + ... in F order.
            let mut f = vec![0; c.len()];
            for n in 0..count {
                let (mut rest, mut index) = (n, vec![0; shape.len()]);
                for (i, &d) in index.iter_mut().zip(shape).rev() {
                    *i = rest % d;
                    rest /= d;
                }
                let at = index.iter().zip(shape).rev().fold(0, |at, (&i, &d)| at * d + i);
                f[at * item..][..item].copy_from_slice(&c[n * item..][..item]);
            }
            assert_eq!(transpose(&f, shape, &reversed(shape), item).unwrap(), c, "{shape:?} {item}");
        }
    }
    assert!(transpose(&[0; 5], &[2, 3], &[1, 0], 1).is_err());
    assert!(transpose(&[0; 5], &[usize::MAX, 3], &[1, 0], 1).is_err());
}

#[test]
fn cropped_blocks_are_padded() {
    let out = pad(vec![1, 2, 3, 4], &[2, 2], &[3, 4], 1, &[9]).unwrap();
    assert_eq!(out, [1, 2, 9, 9, 3, 4, 9, 9, 9, 9, 9, 9]);
    let out = pad(vec![1, 2, 3, 4], &[1, 2], &[2, 2], 2, &[8, 9]).unwrap();
    assert_eq!(out, [1, 2, 3, 4, 8, 9, 8, 9]);
    let out = pad((1..=8).collect(), &[2, 1, 2, 2], &[2, 2, 2, 2], 1, &[0]).unwrap();
    assert_eq!(out, [1, 2, 3, 4, 0, 0, 0, 0, 5, 6, 7, 8, 0, 0, 0, 0]);
    assert_eq!(pad(vec![5], &[], &[], 1, &[0]).unwrap(), [5]);
    assert_eq!(pad(vec![], &[0, 2], &[1, 2], 1, &[7]).unwrap(), [7, 7]);
    assert!(pad(vec![1, 2, 3], &[3], &[2], 1, &[0]).is_err());
    assert!(pad(vec![1, 2, 3], &[2], &[4], 1, &[0]).is_err());
    assert!(pad(vec![1, 2], &[2, 1], &[4], 1, &[0]).is_err());
    assert!(pad(vec![1, 2], &[2], &[4], 1, &[]).is_err());
    assert!(pad(vec![], &[0, 2], &[usize::MAX, 2], 8, &[0; 8]).is_err());
    assert_eq!(filled(5, &[1, 2]), [1, 2, 1, 2, 1]);
    assert_eq!(filled(3, &[]), [0, 0, 0]);
}

#[test]
fn any_order_of_axes_becomes_c_order() {
    // numpy.arange(24).reshape(2, 3, 4).transpose(order).copy() is the block, for each order.
    let shape = [2usize, 3, 4];
    for axes in [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]] {
        for item in [1, 2, 3, 8] {
            let c: Vec<u8> = (0..24u8).flat_map(|n| vec![n; item]).collect();
            let mut block = Vec::new();
            for i in 0..shape[axes[0]] {
                for j in 0..shape[axes[1]] {
                    for k in 0..shape[axes[2]] {
                        let mut index = [0; 3];
                        (index[axes[0]], index[axes[1]], index[axes[2]]) = (i, j, k);
                        block.extend(vec![(index[0] * 12 + index[1] * 4 + index[2]) as u8; item]);
                    }
                }
            }
            assert_eq!(transpose(&block, &shape, &axes, item).unwrap(), c, "{axes:?} {item}");
        }
    }
    for axes in [&[0, 1][..], &[0, 1, 1], &[0, 1, 3], &[0, 1, 2, 2]] {
        assert!(transpose(&[0; 24], &shape, axes, 1).is_err(), "{axes:?}");
    }
}
