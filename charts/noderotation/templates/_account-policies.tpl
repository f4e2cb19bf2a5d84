{{- /*
Policies for the accounts of this release, shared by account-policies.yaml and cleanup.yaml. The templates of policies take
root, name, user (as the API server calls the account), who (as a message calls it), and annotations, which may be missing.
*/}}

{{- /* Of NodePools and NodeClaims: the state of rotations. */}}
{{- define "noderotation.karpenterPolicy" }}
{{- include "noderotation.accountPolicy" (merge (dict "name" (printf "%s-karpenter" .name)
  "rules" (list "{apiGroups: [karpenter.sh], apiVersions: ['*'], operations: [UPDATE], resources: ['nodepools', 'nodepools/*', 'nodeclaims', 'nodeclaims/*'], scope: Cluster}")
  "validations" (list
    (dict "message" (printf "%s changes annotations with the prefix noderotation.io/ and nothing else of this object" .who) "expression" (include "noderotation.onlyOurAnnotations" ""))
    (dict "message" (printf "%s never changes spec, labels, finalizers or ownerReferences of this object" .who) "expression" (printf "object.?spec == oldObject.?spec && object.?status == oldObject.?status && %s" (include "noderotation.sameMetadata" .))))) .) }}
{{- end }}

{{- /* Of Nodes: the cordon and what says whose it is. */}}
{{- define "noderotation.nodesPolicy" }}
{{- include "noderotation.accountPolicy" (merge (dict "name" (printf "%s-nodes" .name)
  "rules" (list "{apiGroups: [''], apiVersions: [v1], operations: [CREATE, UPDATE, DELETE], resources: [nodes, 'nodes/*'], scope: Cluster}")
  "validations" (list
    (dict "message" (printf "%s creates and deletes no Node" .who) "expression" `request.operation == "UPDATE"`)
    (dict "message" (printf "%s changes annotations with the prefix noderotation.io/ and karpenter.sh/do-not-disrupt of a Node, and no others" .who) "expression" (include "noderotation.onlyOurAnnotations" "karpenter.sh/do-not-disrupt"))
    (dict "message" (printf "of a Node's spec %s changes unschedulable only, and neither labels, finalizers nor status" .who) "expression" (printf "%s && %s" (include "noderotation.sameFields" (list "object.spec" "oldObject.spec" "taints" "providerID" "podCIDR" "podCIDRs" "configSource" "externalID")) (printf "object.?status == oldObject.?status && %s" (include "noderotation.sameMetadata" .)))))) .) }}
{{- end }}

{{- /* A ValidatingAdmissionPolicy for the writes of one user, impersonated or not. */}}
{{- define "noderotation.accountPolicy" }}
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata:
  name: {{ .name }}
  labels: {{- include "noderotation.labels" .root | nindent 4 }}
  {{- with .annotations }}
  annotations: {{- . | nindent 4 }}
  {{- end }}
spec:
  failurePolicy: Fail
  matchConstraints:
    matchPolicy: Equivalent
    resourceRules:
    {{- range .rules }}
    - {{ . }}
    {{- end }}
  matchConditions:
  - name: this-account
    expression: request.userInfo.username == {{ .user | quote }}
  validations:
  {{- range .validations }}
  - expression: {{ .expression | quote }}
    message: {{ .message | quote }}
    reason: Forbidden
  {{- end }}
{{- include "noderotation.denyBinding" . }}
{{- end }}

{{- /* No annotation differs but ours, and the one given, if any. Compared are the texts of both maps: what stands before our first
key and behind our last. */}}
{{- define "noderotation.onlyOurAnnotations" -}}
{{- $text := include "noderotation.mapText" "m" }}
{{- if . }}
{{- $text = printf `(%q in m ? [%s].map(e, %s.replace(e.substring(0, e.size() - 1), ""))[0] : %s)` . (include "noderotation.mapText" (printf "{%q: m[%q]}" . .)) $text $text }}
{{- end -}}
object.metadata.?annotations == oldObject.metadata.?annotations || [[object.metadata.?annotations.orValue({}), oldObject.metadata.?annotations.orValue({})].map(m, m.size() == 0 ? "}" : {{ $text }}).map(t, t.split(", \"noderotation.io/")).map(p, p.size() == 1 ? p[0] : [p[p.size() - 1].split("\", \"", 2)].map(last, p[0] + (last.size() == 2 ? ", \"" + last[1] : "}"))[0])].all(rest, rest[0] == rest[1])
{{- end }}

{{- define "noderotation.sameMetadata" -}}
object.metadata.?labels == oldObject.metadata.?labels && object.metadata.?finalizers == oldObject.metadata.?finalizers && object.metadata.?ownerReferences == oldObject.metadata.?ownerReferences
{{- end }}

{{- /* Two objects agree in these fields: a list of the first, the second, and the names. */}}
{{- define "noderotation.sameFields" -}}
{{- $first := index . 0 }}{{ $second := index . 1 }}
{{- $equal := list }}
{{- range slice . 2 }}{{ $equal = append $equal (printf "%s.?%s == %s.?%s" $first . $second .) }}{{ end }}
{{- join " && " $equal }}
{{- end }}
