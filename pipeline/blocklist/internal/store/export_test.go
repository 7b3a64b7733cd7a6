package store

// ExpiredPerBatch is for the test of what a batch removes.
const ExpiredPerBatch = expiredPerBatch
