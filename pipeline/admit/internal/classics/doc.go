// Package classics has nothing but tests: each line of the page docs/from-other-limiters.md lets in what the
// limiter that it stands for lets in. These limiters are written here as their own documents and
// sources have them, and share nothing with this module's windows.
package classics
