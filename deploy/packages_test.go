package deploy

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/tallygate/tallygate/internal/run/devstack"
	"github.com/tallygate/tallygate/internal/testing/testrun"
)

const dist = "../bin/dist" // where make snapshot builds

// What a release's files have in them. make snapshot has built those.
func TestPackages(t *testing.T) {
	if os.Getenv("TALLYGATE_TEST_DIST") == "" {
		t.Skip("make nightly runs it: packages") // by make snapshot
	}
	deb := one(t, "tallygate_*_"+runtime.GOARCH+".deb")
	listed := output(t, "dpkg-deb", "--contents", deb)
	for _, want := range []string{
		`-rwxr-xr-x root/root .* \./usr/lib/tallygate/aggregator`,
		`-rwxr-xr-x root/root .* \./usr/lib/tallygate/enforcer`,
		`-rwxr-xr-x root/root .* \./usr/lib/tallygate/enforcer-kafka`,
		`-rwxr-xr-x root/root .* \./usr/lib/tallygate/tallygate`,
		`l\S+ .* \./usr/bin/tallygate -> (\.\.|/usr)/lib/tallygate/tallygate`,
		`l\S+ .* \./usr/bin/tallygate-aggregator -> (\.\.|/usr)/lib/tallygate/aggregator`,
		`l\S+ .* \./usr/bin/tallygate-enforcer -> (\.\.|/usr)/lib/tallygate/enforcer`,
		`-rw-r--r-- root/root .* \./usr/lib/systemd/system/tallygate-aggregator\.service`,
		`-rw-r--r-- root/root .* \./usr/lib/systemd/system/tallygate-enforcer\.service`,
		`-rw-r--r-- root/root .* \./usr/lib/systemd/system/tallygate-console\.service`,
		`-rw-r--r-- root/root .* \./usr/lib/systemd/system/tallygate-notify\.service`,
		`-rw-r--r-- root/root .* \./usr/lib/systemd/system/tallygate-emit@\.service`,
		`drwxr-x--- root/tallygate .* \./etc/tallygate/`,
		`drwx------ root/root .* \./etc/tallygate/secrets/`,
		`-rw-r----- root/tallygate .* \./etc/tallygate/tallygate\.yaml`,
		`-rw-r----- root/tallygate .* \./etc/tallygate/rules\.yaml`,
		`-rw-r----- root/root .* \./etc/tallygate/aggregator\.env`,
		`-rw-r----- root/root .* \./etc/tallygate/enforcer\.env`,
		`-rw-r--r-- root/root .* \./usr/share/bash-completion/completions/tallygate`,
		`l\S+ .* \./usr/share/bash-completion/completions/tallygate-aggregator -> tallygate`,
		`-rw-r--r-- root/root .* \./usr/share/zsh/vendor-completions/_tallygate`,
		`-rw-r--r-- root/root .* \./usr/share/fish/vendor_completions\.d/tallygate\.fish`,
		`-rw-r--r-- root/root .* \./usr/share/doc/tallygate/copyright`,
	} {
		if !regexp.MustCompile(`(?m)^` + want + `$`).MatchString(listed) {
			t.Errorf("%s has no %s:\n%s", deb, want, listed)
		}
	}
	chart, err := filepath.Glob("../bin/chart/tallygate-*.tgz")
	if err != nil || len(chart) != 1 || !strings.Contains(output(t, "tar", "tzf", chart[0]), "tallygate/Chart.yaml\n") {
		t.Fatalf("the Helm chart: %v, %v", chart, err)
	}
	if sums, err := os.ReadFile(filepath.Join(dist, "SHA256SUMS")); err != nil || !strings.Contains(string(sums), filepath.Base(chart[0])) {
		t.Errorf("SHA256SUMS has no %s: %v", filepath.Base(chart[0]), err)
	}
	control := t.TempDir()
	output(t, "dpkg-deb", "--control", deb, control)
	conffiles, err := os.ReadFile(filepath.Join(control, "conffiles"))
	if err != nil {
		t.Fatal(err)
	}
	got := strings.Fields(string(conffiles))
	slices.Sort(got)
	if want := []string{"/etc/tallygate/aggregator.env", "/etc/tallygate/enforcer.env", "/etc/tallygate/rules.yaml", "/etc/tallygate/tallygate.yaml"}; !slices.Equal(got, want) {
		t.Errorf("conffiles %v, want %v", got, want)
	}
	for _, script := range []string{"preinst", "postinst", "prerm", "postrm"} {
		if info, err := os.Stat(filepath.Join(control, script)); err != nil || info.Mode()&0o111 == 0 {
			t.Errorf("the script %s: %v %v", script, info, err)
		}
	}
	rpm := one(t, "tallygate-*."+map[string]string{"amd64": "x86_64", "arm64": "aarch64"}[runtime.GOARCH]+".rpm")
	if _, err := exec.LookPath("rpm"); err == nil {
		if got := output(t, "rpm", "-qp", "--configfiles", rpm); strings.Count(got, "/etc/tallygate/") != 4 {
			t.Errorf("%s keeps as it is: %s", rpm, got)
		}
	}
}

// The packaged programs know their version, and work with the packaged config.
func TestPackagedPrograms(t *testing.T) {
	if os.Getenv("TALLYGATE_TEST_DIST") == "" {
		t.Skip("make nightly runs it: packages") // by make snapshot
	}
	dir := t.TempDir()
	output(t, "dpkg-deb", "--extract", one(t, "tallygate_*_"+runtime.GOARCH+".deb"), dir)
	programs, etc := filepath.Join(dir, "usr/lib/tallygate"), filepath.Join(dir, "etc/tallygate")
	for _, program := range []string{"aggregator", "enforcer", "tallygate"} {
		want := regexp.MustCompile(`^` + program + ` v[0-9]+\.[0-9]+\.[0-9]+\S*, commit [0-9a-f]{40}(-modified)?, go1`)
		if got := output(t, filepath.Join(programs, program), "--version"); !want.MatchString(got) {
			t.Errorf("%s: %s", program, got)
		}
	}
	output(t, filepath.Join(programs, "tallygate"), "check", filepath.Join(etc, "rules.yaml"))
	stack, err := devstack.Start(context.WithoutCancel(t.Context()), devstack.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(stack.Close)
	common := []string{"--config", filepath.Join(etc, "tallygate.yaml"), "--redis", stack.Redis, "--listen", "127.0.0.1:0", "--metrics-listen", "127.0.0.1:0"}
	runsUntilReady(t, filepath.Join(programs, "aggregator"), append(common, "--kafka", stack.Kafka[0], "--rules", filepath.Join(etc, "rules.yaml"))...)
	runsUntilReady(t, filepath.Join(programs, "enforcer"), append(common, "--grpc-listen", "127.0.0.1:0", "--snapshot", filepath.Join(dir, "blocklist"))...)
	runsUntilReady(t, filepath.Join(programs, "enforcer"), append(common, "--kafka", stack.Kafka[0], "--emit-admitted")...)
}

// runsUntilReady starts a program, waits until it says that it is ready, and stops it when the test ends.
func runsUntilReady(t *testing.T, program string, args ...string) {
	t.Helper()
	said := &testrun.Output{}
	cmd := exec.Command(program, args...)
	cmd.Stderr = said
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM) // it may have ended
		if err := <-ended; err != nil {
			t.Errorf("%s: %v\n%s", program, err, said)
		}
	})
	testrun.Eventually(t, program+" is ready", func() bool {
		return said.Has(`"msg":"ready"`) || len(ended) > 0
	})
}

// one returns the one file of dist that a pattern stands for.
func one(t *testing.T, pattern string) string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dist, pattern))
	if err != nil || len(files) != 1 {
		t.Fatalf("%s: %v %v", pattern, files, err)
	}
	return files[0]
}

func output(t *testing.T, name string, args ...string) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), name, args...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s %v: %v\n%s", name, args, err, out)
	}
	return string(out)
}
