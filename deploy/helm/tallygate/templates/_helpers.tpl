{{- define "tallygate.name" -}}
{{- if contains "tallygate" .Release.Name }}{{ .Release.Name | trunc 40 | trimSuffix "-" }}{{ else }}{{ printf "%s-tallygate" .Release.Name | trunc 40 | trimSuffix "-" }}{{ end }}
{{- end }}

{{/* Labels that never change, for selectors: (list . "aggregator") */}}
{{- define "tallygate.selector" -}}
app.kubernetes.io/name: tallygate
app.kubernetes.io/instance: {{ (index . 0).Release.Name }}
app.kubernetes.io/component: {{ index . 1 }}
{{- end }}

{{- define "tallygate.labels" -}}
{{ include "tallygate.selector" . }}
app.kubernetes.io/managed-by: {{ (index . 0).Release.Service }}
app.kubernetes.io/version: {{ (index . 0).Values.image.tag | default (index . 0).Chart.AppVersion | quote }}
helm.sh/chart: tallygate-{{ (index . 0).Chart.Version }}
{{- end }}

{{- define "tallygate.meta" -}}
namespace: {{ (index . 0).Release.Namespace }}
labels: {{- include "tallygate.labels" . | nindent 2 }}
{{- end }}

{{- define "tallygate.image" -}}
{{- $root := index . 0 }}{{ $program := index . 1 }}{{ $digest := index $root.Values.image.digests $program -}}
image: {{ $root.Values.image.registry }}/{{ $program }}{{ if $digest }}@{{ $digest }}{{ else }}:{{ $root.Values.image.tag | default $root.Chart.AppVersion }}{{ end }}
imagePullPolicy: {{ $root.Values.image.pullPolicy }}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities: {drop: [ALL]}
{{- end }}

{{/* What all pods have: (list . "aggregator" .Values.aggregator) */}}
{{- define "tallygate.pod" -}}
{{- $root := index . 0 }}{{ $c := index . 1 }}{{ $v := index . 2 -}}
automountServiceAccountToken: false
enableServiceLinks: false # variables TALLYGATE_… of services would look like options
securityContext:
  runAsNonRoot: true
  runAsUser: 10001
  runAsGroup: 10001
  fsGroup: 10001
  fsGroupChangePolicy: OnRootMismatch
  seccompProfile: {type: RuntimeDefault}
{{- with $root.Values.image.pullSecrets }}
imagePullSecrets: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with get $v "priorityClassName" }}
priorityClassName: {{ . }}
{{- end }}
{{- with get $v "nodeSelector" }}
nodeSelector: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with get $v "tolerations" }}
tolerations: {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{- define "tallygate.spread" -}}
topologySpreadConstraints:
{{- range list "topology.kubernetes.io/zone" "kubernetes.io/hostname" }}
  - maxSkew: 1
    topologyKey: {{ . }}
    whenUnsatisfiable: ScheduleAnyway
    labelSelector: {matchLabels: {{ include "tallygate.selector" $ | fromYaml | toJson }} }
{{- end }}
{{- end }}

{{/* Nine tenths of a memory limit, for Go: 1Gi is 921MiB. */}}
{{- define "tallygate.gomemlimit" -}}
{{- if hasSuffix "Gi" . }}{{ div (mul (trimSuffix "Gi" . | int) 9216) 10 }}MiB{{ else }}{{ div (mul (trimSuffix "Mi" . | int) 9) 10 }}MiB{{ end }}
{{- end }}

{{- define "tallygate.env" -}}
- {name: GOMEMLIMIT, value: {{ include "tallygate.gomemlimit" .resources.limits.memory }}}
{{- with .extraEnv }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- define "tallygate.probes" -}}
startupProbe: # ten minutes, for the recovery of many keys
  httpGet: {path: /healthz, port: metrics}
  periodSeconds: 2
  failureThreshold: 300
livenessProbe:
  httpGet: {path: /healthz, port: metrics}
  periodSeconds: 10
  timeoutSeconds: 5
  failureThreshold: 6
readinessProbe:
  httpGet: {path: /readyz, port: metrics}
  periodSeconds: 2
  timeoutSeconds: 2
{{- end }}

{{/* The address of the aggregators' API, for other programs. */}}
{{- define "tallygate.scheme" -}}{{ if .Values.aggregator.tlsSecret }}https://{{ end }}{{- end }}
