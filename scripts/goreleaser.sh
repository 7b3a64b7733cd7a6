#!/usr/bin/env bash
# Prints a folder with snapshot, which is the part of GoReleaser that builds and packages, and with cyclonedx-gomod,
# which writes SBOMs. Both are built from their Go modules when missing (a few minutes of CPU, once). The modules are
# pinned by their checksums, and what they need by the go.sum in them. Later versions of GoReleaser need a later
# Go than ours.
#
# The whole of GoReleaser is two and a half times as many packages, for a dozen clouds, and packages for one
# platform only in its paid edition. What it reads of .goreleaser.yaml, and what it does with that, is the same.
set -euo pipefail

readonly goreleaser=2.16.0 goreleaser_sum=h1:MgAx2uKCUXqv993rAVMd8Uk/HwzJdSz033z9kTta6kk=
readonly cyclonedx=1.10.0 cyclonedx_sum=h1:9Vy3zcC+lJLgcR4xYQvwPGU6L2Rij/Ld47lyucYjVI0=
readonly cache=${TALLYGATE_CACHE:-$HOME/.cache/tallygate}
readonly dir=$cache/goreleaser-$goreleaser-$cyclonedx

die() { echo "goreleaser.sh: $*" >&2; exit 1; }

# field NAME prints a field of the JSON that go mod download prints.
field() { sed -nE "s/^\s*\"$1\": \"(.*)\",?$/\1/p"; }

# fetch NAME MODULE VERSION SUM copies a module into the folder NAME.
fetch() {
  local module
  module=$(go mod download -json "$2@v$3") || die "cannot fetch $1 $3: $module"
  [[ $(field Sum <<<"$module") == "$4" ]] || die "$1 $3 has another checksum than $4"
  cp -r "$(field Dir <<<"$module")" "$1"
  chmod -R u+w "$1"
}

# build FOLDER PACKAGE builds a program of what was fetched.
build() {
  (cd "$1" && nice go build -trimpath -ldflags "-s -w" -o ../made/ "$2") >&2 || die "cannot build $2 in $1"
}

if [[ -x $dir/snapshot ]]; then
  echo "$dir"
  exit
fi
mkdir -p "$cache"
work=$(mktemp -d "$dir.XXXXXX")
trap 'rm -rf "$work"' EXIT
export GOWORK=off GOFLAGS='' CGO_ENABLED=0
cd "$work"
mkdir made
fetch goreleaser github.com/goreleaser/goreleaser/v2 "$goreleaser" "$goreleaser_sum"
fetch cyclonedx github.com/CycloneDX/cyclonedx-gomod "$cyclonedx" "$cyclonedx_sum"
mkdir goreleaser/cmd/snapshot
cat >goreleaser/cmd/snapshot/main.go <<'GO'
// Command snapshot runs the parts of goreleaser that build and package, and none that publishes: those link the
// clients of a dozen clouds.
package main

import (
	stdcontext "context"
	"errors"
	"fmt"
	"os"
	"runtime"

	"github.com/goreleaser/goreleaser/v2/internal/middleware/errhandler"
	"github.com/goreleaser/goreleaser/v2/internal/middleware/skip"
	"github.com/goreleaser/goreleaser/v2/internal/pipe/archive"
	"github.com/goreleaser/goreleaser/v2/internal/pipe/before"
	"github.com/goreleaser/goreleaser/v2/internal/pipe/build"
	"github.com/goreleaser/goreleaser/v2/internal/pipe/checksums"
	"github.com/goreleaser/goreleaser/v2/internal/pipe/dist"
	dockerv2 "github.com/goreleaser/goreleaser/v2/internal/pipe/docker/v2"
	"github.com/goreleaser/goreleaser/v2/internal/pipe/git"
	"github.com/goreleaser/goreleaser/v2/internal/pipe/gomod"
	"github.com/goreleaser/goreleaser/v2/internal/pipe/metadata"
	"github.com/goreleaser/goreleaser/v2/internal/pipe/nfpm"
	"github.com/goreleaser/goreleaser/v2/internal/pipe/partial"
	"github.com/goreleaser/goreleaser/v2/internal/pipe/project"
	"github.com/goreleaser/goreleaser/v2/internal/pipe/sbom"
	"github.com/goreleaser/goreleaser/v2/internal/pipe/semver"
	"github.com/goreleaser/goreleaser/v2/internal/pipe/sign"
	"github.com/goreleaser/goreleaser/v2/internal/pipe/snapshot"
	"github.com/goreleaser/goreleaser/v2/internal/skips"
	"github.com/goreleaser/goreleaser/v2/pkg/config"
	"github.com/goreleaser/goreleaser/v2/pkg/context"
)

type pipe interface {
	fmt.Stringer
	Run(ctx *context.Context) error
}

type defaults interface {
	fmt.Stringer
	Default(ctx *context.Context) error
}

// setDefaults is a step that fills in what the file does not say, and refuses what it says wrongly.
type setDefaults []defaults

func (setDefaults) String() string { return "defaults" }

func (all setDefaults) Run(ctx *context.Context) error {
	for _, d := range all {
		if err := errhandler.Handle(d.Default)(ctx); err != nil {
			return fmt.Errorf("%s: %w", d, err)
		}
	}
	return nil
}

func run() error {
	cfg, err := config.Load(".goreleaser.yaml")
	if err != nil {
		return err
	}
	ctx := context.Wrap(stdcontext.Background(), cfg)
	ctx.Action, ctx.Snapshot, ctx.Clean, ctx.Parallelism = context.ActionRelease, true, true, runtime.GOMAXPROCS(0)
	ctx.Partial = os.Getenv("ONLY") != ""
	skips.Set(ctx, skips.Publish, skips.Announce, skips.Validate)
	for _, p := range []pipe{
		dist.CleanPipe{}, git.Pipe{}, semver.Pipe{},
		setDefaults{
			dist.Pipe{}, snapshot.Pipe{}, project.Pipe{}, gomod.Pipe{}, build.Pipe{}, archive.Pipe{}, nfpm.Pipe{},
			checksums.Pipe{}, sign.Pipe{}, sbom.Pipe{}, dockerv2.Base{},
		},
		partial.Pipe{}, snapshot.Pipe{}, before.Pipe{}, dist.Pipe{}, gomod.Pipe{}, build.Pipe{}, archive.Pipe{}, nfpm.Pipe{},
		sbom.Pipe{}, checksums.Pipe{}, metadata.ArtifactsPipe{},
	} {
		fmt.Fprintln(os.Stderr, "==", p)
		if err := skip.Maybe(p, errhandler.Handle(p.Run))(ctx); err != nil {
			return fmt.Errorf("%s: %w", p, err)
		}
	}
	if ctx.Deprecated {
		return errors.New("the config has what is deprecated: see above")
	}
	return nil
}

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "snapshot:", err)
		os.Exit(1)
	}
}
GO
build goreleaser ./cmd/snapshot
build cyclonedx ./cmd/cyclonedx-gomod
mv -T made "$dir" 2>/dev/null || [[ -x $dir/snapshot ]] || die "cannot write $dir"
echo "$dir"
